package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/results/rows"
)

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
		if got := rows.Quantile(c.values, c.q); got != c.want {
			t.Errorf("rows.Quantile(%v, %v) = %v, want %v", c.values, c.q, got, c.want)
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

func TestFastestTenth(t *testing.T) {
	for name, c := range map[string]struct {
		logs []string
		want float64
	}{
		"two clients": {[]string{strings.Repeat("0 1 900 0 1 2\n", 9) + "0 2 100 0 1 2\n",
			strings.Repeat("1 1 5000 0 1 2\n", 9) + "1 2 200 0 1 2\n"}, 150e-6},
		"too few":      {[]string{"0 1 100 0 1 2\n"}, -1},
		"no number":    {[]string{"0 1 skipped 0 1 2\n"}, -1},
		"a short line": {[]string{"0 1\n"}, -1},
		"nothing":      {[]string{""}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i, text := range c.logs {
				if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			times, err := transactionTimes(dir)
			if c.want < 0 {
				if err == nil {
					t.Errorf("%v, want an error", times)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := fastestTenth(times); got < c.want*0.999 || got > c.want*1.001 {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}
