package main

import "testing"

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{nil, 0.5, 0},
		{[]float64{3}, 0.25, 3},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{4, 1, 3, 2}, 1, 4},
		{[]float64{5, 1, 3}, 0.25, 2},
	} {
		if got := quantile(c.values, c.q); got != c.want {
			t.Errorf("quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
		}
	}
}

func TestRatiosNeedAReferenceOfEachRound(t *testing.T) {
	if got := ratiosOf([]float64{1, 2}, []float64{2, 2}); len(got) != 2 || got[0] != 0.5 || got[1] != 1 {
		t.Errorf("ratios %v, want [0.5 1]", got)
	}
	if got := ratiosOf([]float64{1, 2}, nil); got != nil {
		t.Errorf("ratios without a reference: %v", got)
	}
}
