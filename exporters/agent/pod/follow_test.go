package pod

import (
	"encoding/json"
	"strings"
	"testing"
)

// What people and their templates write for false leaves a pod's servers out, and so does what is not understood, which
// is counted.
func TestFollow(t *testing.T) {
	for value, want := range map[string]struct{ follow, unknown bool }{
		``:                                {true, false},
		`"plumbline.io/follow": "true"`:   {true, false},
		`"plumbline.io/follow": "Yes"`:    {true, false},
		`"plumbline.io/follow": "false"`:  {false, false},
		`"plumbline.io/follow": "False"`:  {false, false},
		`"plumbline.io/follow": " FALSE"`: {false, false},
		`"plumbline.io/follow": "no\n"`:   {false, false},
		`"plumbline.io/follow": "0"`:      {false, false},
		`"plumbline.io/follow": "off"`:    {false, false},
		`"plumbline.io/follow": "flase"`:  {false, true},
		`"plumbline.io/follow": ""`:       {false, true},
	} {
		var o object
		if err := json.Unmarshal([]byte(`{"metadata": {"annotations": {`+value+`}}}`), &o); err != nil {
			t.Fatal(err)
		}
		follow, _ := o.follows()
		if unknown := o.UnknownValue(); follow != want.follow || (unknown != "") != want.unknown || want.unknown && !strings.HasPrefix(unknown, "plumbline.io/follow=") {
			t.Errorf("%s: followed %v, unknown %q; want %+v", value, follow, unknown, want)
		}
	}
}
