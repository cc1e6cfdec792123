package baseline

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/loadgen/internal/words"
)

// slower returns an error if a baseline's pinned quantile is more than share above that of the pins
// which it would replace: then what it has measured may be the regression that it should show.
// Pins of another version of the rules, and of another load, are not compared.
func slower(old ruleFile, baselines []Baseline, share float64) error {
	if share <= 0 {
		return nil
	}
	var errs []error
	for _, b := range baselines {
		for _, q := range b.Result.Response.Quantiles {
			if q.Q != pinned {
				continue
			}
			was, ok := old.quantile(b, strconv.FormatFloat(pinned, 'f', -1, 64))
			if ok && q.Value > was*(1+share) {
				errs = append(errs, fmt.Errorf("%s: the 95th percentile of this run is %.3f ms, %s %s the pinned one of %.3f ms, and --refuse-slower allows %.4g %%: "+
					"the old pin stays, without proof that the storage is slower; loadgen compare tests that",
					b.name(), q.Value*1000, words.Change(q.Value/was, 1+share), words.Beside(q.Value/was), was*1000, share*100))
			}
		}
	}
	return errors.Join(errs...)
}

// quantile returns what is pinned for a baseline's load.
func (f ruleFile) quantile(b Baseline, quantile string) (float64, bool) {
	for _, g := range f.Groups {
		for _, r := range g.Rules {
			l := r.Labels
			if r.Record != responseSeconds || l["quantile"] != quantile || l["rules"] != RulesVersion || l["profile"] != b.Result.Profile ||
				l["storageclass"] != b.StorageClass || l["database"] != b.Database || l["cluster"] != b.Cluster {
				continue
			}
			text := strings.TrimSuffix(strings.TrimPrefix(r.Expr, "vector("), ")")
			if v, err := strconv.ParseFloat(text, 64); err == nil && v > 0 {
				return v, true
			}
		}
	}
	return 0, false
}
