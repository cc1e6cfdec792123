package predict

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
	"github.com/plumbline/plumbline/loadgen/stats"
)

const (
	// muchApart is how many times as long one volume of a class may take as another before the interval must hold each.
	muchApart = 2
	// leastFreedom of what is known of how volumes differ: two of a class are not taken for the only ones that are
	// alike.
	leastFreedom = 2
)

// volume is a volume of a class, with its windows.
type volume struct {
	name    string
	windows []Load
}

// byVolume are windows by their volume, in the order in which these come first.
func byVolume(windows []Load) (all []volume) {
	at := map[string]int{}
	for _, w := range windows {
		i, known := at[w.Volume]
		if !known {
			i, at[w.Volume] = len(all), len(all)
			all = append(all, volume{name: w.Volume})
		}
		all[i].windows = append(all[i].windows, w)
	}
	return all
}

// scatter are logarithms of what was predicted from windows drawn anew, by volume.
type scatter [][]float64

func (s scatter) count() int {
	n := 0
	for _, values := range s {
		n += len(values)
	}
	return n
}

// means are those of the volumes that have values; within is the variance of these around them.
func (s scatter) means() (means []float64, within float64) {
	freedom := 0
	for _, values := range s {
		if len(values) == 0 {
			continue
		}
		mean := 0.0
		for _, v := range values {
			mean += v / float64(len(values))
		}
		for _, v := range values {
			within += (v - mean) * (v - mean)
		}
		freedom += len(values) - 1
		means = append(means, mean)
	}
	return means, within / max(float64(freedom), 1)
}

// interval is around what is expected. It has what the model may be off, how so many windows differ, and how volumes
// do; and it holds each volume where these are much apart.
func (s scatter) interval(expected, model float64, windows int) (low, high float64) {
	means, within := s.means()
	n := float64(max(windows, 2))
	// Windows that are drawn of n differ less than others do, by (n-1)/n. Of what is measured later there are no more
	// of them than of what was measured now.
	d := stats.Student(upTo, n-1) * math.Sqrt(2*within*n/(n-1))
	one := math.Hypot(model, d)
	width := one
	if v := float64(len(means)); v > 1 {
		_, between := scatter{means}.means()
		width = math.Hypot(one, stats.Student(upTo, max(v-1, leastFreedom))*math.Sqrt(between*(1+1/v)))
	}
	low, high = expected*math.Exp(-width), expected*math.Exp(width)
	if len(means) > 0 && apart(means) {
		low, high = min(low, math.Exp(slices.Min(means)-one)), max(high, math.Exp(slices.Max(means)+one))
	}
	return low, high
}

// apart is whether volumes are much apart.
func apart(means []float64) bool { return slices.Max(means)-slices.Min(means) > math.Log(muchApart) }

// ofVolumes notes whose volumes were read, on how many the class was measured at like load, and whether these
// differ much.
func (p *Prediction) ofVolumes(c Class, volumes []volume, spread []map[float64]scatter) {
	class := label.Value(c.Name)
	if c.Volumes > 0 {
		read := len(byVolume(c.Windows))
		p.Notes = append(p.Notes, fmt.Sprintf("%d of %d volumes of class %s were read, those with the nearest load", read, c.Volumes, class))
	}
	if len(c.Pooled) > 1 {
		names := make([]string, len(c.Pooled))
		for i, name := range c.Pooled {
			names[i] = label.Value(name)
		}
		p.Notes = append(p.Notes, fmt.Sprintf("volumes of the storage classes %s are taken together: --to with a class predicts for one of them", strings.Join(names, ", ")))
	}
	switch n := p.countUsable(volumes, spread); n {
	case 1:
		p.Notes = append(p.Notes, fmt.Sprintf("class %s was measured on one volume: others of it may differ", class))
		return
	case 2:
		p.Notes = append(p.Notes, fmt.Sprintf("class %s was measured on two volumes, which are weak evidence of others: the interval holds fewer than nine of ten of these", class))
	default:
		p.Notes = append(p.Notes, fmt.Sprintf("class %s was measured on %d volumes: the interval is for any of them", class, n))
	}
	for i, s := range p.Statements {
		if i >= len(spread) || s.Refusal != nil {
			continue
		}
		medians := spread[i][0.5]
		least, greatest := -1, -1
		mean := func(at int) float64 { m, _ := medians[at : at+1].means(); return m[0] }
		for at := range medians {
			if len(medians[at]) == 0 {
				continue
			}
			if least < 0 || mean(at) < mean(least) {
				least = at
			}
			if greatest < 0 || mean(at) > mean(greatest) {
				greatest = at
			}
		}
		if means, _ := medians.means(); len(means) > 0 && apart(means) {
			p.Notes = append(p.Notes, fmt.Sprintf("these differ: the median of %s would be %s on %s and %s on %s", s.Kind, ms(math.Exp(mean(least))), label.Value(volumes[least].name),
				ms(math.Exp(mean(greatest))), label.Value(volumes[greatest].name)))
		}
	}
}

// countUsable returns how many of the volumes give numbers, for the kind of statement for which the fewest do.
func (p *Prediction) countUsable(volumes []volume, spread []map[float64]scatter) int {
	least := len(volumes)
	for i, s := range p.Statements {
		if i < len(spread) && s.Refusal == nil {
			means, _ := spread[i][0.5].means()
			least = min(least, max(len(means), 1))
		}
	}
	return least
}
