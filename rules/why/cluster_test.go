package why

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/rules/why/queries"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// two are clusters with the same names, and the hub that stores their series beside its own, which have no label.
func two() *whytest.Recording {
	return whytest.Clusters(map[string]float64{"": 4, "eu": 5, "us\x1b[2J": 50})
}

// Queries within a cluster read its series alone, whatever other clusters call theirs.
func TestWithin(t *testing.T) {
	for cluster, sync := range map[string]float64{"": 4, "eu": 5, "us\x1b[2J": 50} {
		for _, older := range []bool{false, true} {
			api := knows(two(), older)
			f, err := Find(t.Context(), Within(api, cluster), Subject{Class: "r3"}, whytest.End, 20*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			if want := (sync + 1.1) / 1000; f.Servers != 1 || math.Abs(f.Commits.Mean/want-1) > 1e-6 || f.Commits.Count > 900 {
				t.Errorf("cluster %q: %d servers, %.0f commits of %v s; want one server's, of %v s", cluster, f.Servers, f.Commits.Count, f.Commits.Mean, want)
			}
		}
		chain := FollowChain(t.Context(), Within(two(), cluster), whytest.End, 20*time.Second)
		if chain.Broken() != nil || len(chain.Joined) != 3 || chain.Links[0].Name != "agent" || chain.Links[0].Found != "1 scraped" {
			t.Errorf("cluster %q: %+v", cluster, chain)
		}
		if nodes, err := Nodes(t.Context(), Within(two(), cluster), whytest.End); err != nil || !slices.Equal(nodes, []string{"n"}) {
			t.Errorf("cluster %q: nodes %v, %v", cluster, nodes, err)
		}
	}
}

// knows is an API that knows no native histograms if it is an older one.
func knows(r *whytest.Recording, old bool) API {
	if !old {
		return r
	}
	r = whytest.NewRecording()
	for cluster, sync := range map[string]float64{"": 4, "eu": 5, "us\x1b[2J": 50} {
		l := whytest.Healthy()
		l.Classic, l.Commit["r3"]["sync"] = true, sync
		r.Cluster = cluster
		l.RecordInto(r)
	}
	return older{r}
}

// Answers of several clusters are not mixed: it is refused, with what there is to choose from.
func TestOneCluster(t *testing.T) {
	one := whytest.Clusters(map[string]float64{"eu": 5})
	none := whytest.Healthy().Record()
	for name, c := range map[string]struct {
		api  API
		want []string // of the refusal; none if it is not refused
	}{
		"several":                 {two(), []string{`3 clusters`, `"", "eu", "us?[2J"`, "--cluster"}},
		"one":                     {one, nil},
		"without the label":       {none, nil},
		"nothing at all":          {whytest.NewRecording(), nil},
		"named":                   {Within(two(), "eu"), nil},
		"named, and has no label": {Within(two(), ""), nil},
		"named wrongly":           {Within(two(), "e\x1bu"), []string{`"e?u"`, `"", "eu", "us?[2J"`}},
		"named, only one":         {Within(one, "eu"), nil},
		"named where none is":     {Within(none, "eu"), []string{`"eu"`, `""`}},
	} {
		err := OneCluster(t.Context(), c.api, whytest.End)
		chain := FollowChain(t.Context(), c.api, whytest.End, 20*time.Second)
		first := chain.Links[0]
		if c.want == nil {
			if err != nil || first.Name == "cluster" {
				t.Errorf("%s: %v, %+v", name, err, first)
			}
			continue
		}
		if err == nil || first.Name != "cluster" || first.Found != "" || len(chain.Links) != 1 {
			t.Errorf("%s: %v, %+v; want a refusal", name, err, first)
			continue
		}
		for _, text := range []string{err.Error(), first.Missing + strings.Join(first.Next, " ")} {
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%s: %s\nwant %s", name, text, want)
				}
			}
			if strings.Contains(text, "\x1b") {
				t.Errorf("%s: %q", name, text)
			}
		}
	}
}

// Every question is of one cluster where one is named: by the target's labels, or by the cluster's own.
func TestEveryQuestionIsWithin(t *testing.T) {
	for _, text := range []map[string]string{queries.Portable, queries.Classic} {
		for name, question := range text {
			if name == "clusters" {
				continue
			}
			a := newQuerier(t.Context(), Within(nil, "c"), time.Time{}, time.Minute).about(Target{Node: "n", Server: "s", Volume: "v", Device: "d", Class: "k"})
			query := a.fill(question)
			selectors := selectors(t, query)
			for _, s := range selectors {
				if !slices.Contains(s, `cluster="c"`) {
					t.Errorf("%s queries %v of any cluster: %s", name, s, query)
				}
			}
			if len(selectors) == 0 {
				t.Errorf("%s selects nothing: %s", name, query)
			}
			free := newQuerier(t.Context(), nil, time.Time{}, time.Minute).about(Target{Node: "n", Server: "s", Volume: "v", Device: "d", Class: "k"})
			if query := free.fill(question); strings.Contains(query, "cluster=") || strings.Contains(query, "$cluster") {
				t.Errorf("%s is not of any cluster: %s", name, query)
			}
		}
	}
}

// selectors are the matchers of each selector of a query.
func selectors(t *testing.T, query string) (all [][]string) {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			var matchers []string
			for _, m := range v.LabelMatchers {
				matchers = append(matchers, m.String())
			}
			all = append(all, matchers)
		}
		return nil
	})
	return all
}
