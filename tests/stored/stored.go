// Package stored makes series that a test holds in memory a storage for Prometheus' own engine.
package stored

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// Find returns the series that have samples between two times, in milliseconds, and that all matchers match, in any order.
type Find func(from, to int64, matchers []*labels.Matcher) []storage.Series

// Querier makes it a storage.Queryable. Expressions ask for series only: names and values of labels are none.
func (f Find) Querier(from, to int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := f(from, to, matchers)
		slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
		return &set{found, -1}
	}}, nil
}

// Match tells whether all matchers match a series.
func Match(l labels.Labels, matchers []*labels.Matcher) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(l.Get(m.Name)) })
}

type set struct {
	all []storage.Series
	at  int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *set) At() storage.Series                { return s.all[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
