package pod

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/foreign"
	"github.com/plumbline/plumbline/tests/testkit"
)

// What the folders of logs told of holds while they do not answer, and an answer that comes late is what they tell of then.
func TestFoldersAnswerLate(t *testing.T) {
	answer := make(chan map[string]Pod)
	n := &Node{calls: foreign.NewCalls(20*time.Millisecond, 8), readLogs: func(string) (map[string]Pod, error) {
		pods := <-answer
		if pods == nil {
			return nil, errors.New("no such folder")
		}
		return pods, nil
	}}
	told := func(pods map[string]Pod, want string) {
		t.Helper()
		if pods != nil || want == "" {
			answer <- pods
		}
		testkit.Eventually(t, time.Minute, func() error {
			n.mu.Lock()
			defer n.mu.Unlock()
			if got := n.logged["u1"].Name; got != want {
				return fmt.Errorf("the pod is called %q, want %q", got, want)
			}
			n.read = time.Time{} // they are asked again
			return nil
		})
	}
	for _, name := range []string{"one", "two"} {
		before := n.logged["u1"].Name
		if got := n.fromFolders()["u1"].Name; got != before {
			t.Errorf("without an answer it is called %q, want %q", got, before)
		}
		told(map[string]Pod{"u1": {Name: name}}, name)
	}
	if got := n.fromFolders()["u1"].Name; got != "two" {
		t.Errorf("while they hang it is called %q", got)
	}
	told(nil, "") // nothing is there any more
}
