package stats

import (
	"encoding/json"
	"fmt"
	"time"
)

// written is a Distribution as JSON: the slots that are not empty, as pairs of index and count.
type written struct {
	N     uint64      `json:"n"`
	Sum   float64     `json:"sum"`
	SumSq float64     `json:"sumsq"`
	Max   int64       `json:"max"`
	Slots [][2]uint64 `json:"slots"`
}

// MarshalJSON writes all of the distribution, so that it can be merged later.
func (d Distribution) MarshalJSON() ([]byte, error) {
	w := written{N: d.n, Sum: d.sum, SumSq: d.sumsq, Max: int64(d.max), Slots: [][2]uint64{}}
	d.each(func(i int, n uint64) bool {
		w.Slots = append(w.Slots, [2]uint64{uint64(i), n})
		return true
	})
	return json.Marshal(w)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (d *Distribution) UnmarshalJSON(text []byte) error {
	var w written
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	*d = Distribution{n: w.N, sum: w.Sum, sumsq: w.SumSq, max: time.Duration(w.Max)}
	var n uint64
	d.few = make([]uint64, 0, len(w.Slots))
	for i, s := range w.Slots {
		if s[0] > 64*sub {
			return fmt.Errorf("distribution: no slot %d", s[0])
		}
		if few := s[1] > 0 && s[1] < 1<<fewBits && len(d.slots) == 0 && (i == 0 || s[0] > w.Slots[i-1][0]); few {
			d.few = append(d.few, s[0]<<fewBits|s[1])
		} else {
			d.grow(int(s[0]))
			d.slots[s[0]] += s[1]
		}
		n += s[1]
	}
	if n != w.N {
		return fmt.Errorf("distribution: %d in slots, n is %d", n, w.N)
	}
	return nil
}
