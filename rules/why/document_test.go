package why_test

import (
	"testing"
	"time"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
	"github.com/plumbline/plumbline/tests/schematest"
)

// Each scenario's document is valid by its schema.
func init() {
	why.Checked = func(t *testing.T, f *why.Finding) {
		schematest.Valid(t, schematest.Compile(t, answer.Schema), answer.Why{
			Head:  answer.Head{APIVersion: answer.Version, Kind: answer.KindWhy, Time: whytest.End.UTC(), WindowSeconds: (20 * time.Second).Seconds()},
			Items: []answer.Finding{answer.NewFinding(f)}})
	}
}
