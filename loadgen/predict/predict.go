package predict

import (
	"fmt"
	"math"
	"slices"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

const (
	// draws is how many statements the prediction simulates.
	draws = 40_000
	// resamples of the windows give the spread of the measurements.
	resamples = 80
	// fewest and most statements that a resample simulates: as many as were measured.
	fewest, most = 300, 6_000
	// deviations of an interval that holds nine of ten, which is from the 5th to the 95th of a hundred.
	deviations, upTo = 1.645, 0.95
)

// modelError is what a prediction is off though all was measured without end, as the deviation of a logarithm. By
// tests/predict.
var modelError = map[float64]float64{0.5: 0.06, 0.99: 0.12}

// Prediction is what a workload would get on a class.
type Prediction struct {
	Workload string `json:"workload"`
	From     string `json:"from"`
	To       string `json:"to"`
	// Statements are the kinds that wait for storage.
	Statements []Predicted `json:"statements,omitempty"`
	// Refusal is why there are none.
	Refusal *Refusal `json:"refusal,omitempty"`
	// Notes are what it rests on.
	Notes []string `json:"notes,omitempty"`
}

// Predicted is a kind of statement.
type Predicted struct {
	Kind   string `json:"kind"`
	Median *Value `json:"median,omitempty"`
	P99    *Value `json:"p99,omitempty"`
	// Refusal is why there are none for this kind.
	Refusal *Refusal `json:"refusal,omitempty"`
}

// Value is a time in seconds: as it is now, and as it is expected, within an interval that is meant to hold nine times
// of ten.
type Value struct {
	Now      float64 `json:"now"`
	Expected float64 `json:"expected"`
	Low      float64 `json:"low"`
	High     float64 `json:"high"`
}

// Predict predicts. The same input gives the same prediction.
func Predict(in *Input) (*Prediction, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	p := &Prediction{Workload: label.Value(in.Workload.Name), From: label.Value(in.From.Name), To: label.Value(in.To.Name)}
	if p.Refusal = p.predict(in); p.Refusal != nil {
		p.Statements = nil
	}
	return p, nil
}

const seed = 20_261_125

func (p *Prediction) predict(in *Input) *Refusal {
	if refused := sharedDisk(in); refused != nil {
		return refused
	}
	f, refused := fit(in.Workload, in.From, seed)
	if refused != nil {
		return refused
	}
	if refused := saturated(in.Workload, f.totalCPU(in.Workload), "now"); refused != nil {
		return refused
	}
	for i := range f.totals {
		f.doubt(i, f.believable(i))
	}
	if refused := f.ofMost(); refused != nil {
		return refused
	}
	to, refused := f.like(in)
	if refused != nil {
		return refused
	}
	there, refused := f.on(to)
	if refused != nil {
		return refused
	}
	f.doubtThere(there, to, in.To.Name)
	if refused := f.ofMost(); refused != nil {
		return refused
	}
	out := there.simulate(draws, seed)
	if refused := f.room(in.Workload, out); refused != nil {
		return refused
	}
	quantiles := []float64{0.5, 0.99}
	volumes := byVolume(to)
	spread, vague := f.spread(in, volumes, quantiles), f.vague(there, quantiles)
	windows := min(len(in.Workload.Windows), len(in.From.Windows))
	if len(volumes) == 1 {
		windows = min(windows, len(to))
	}
	here, _ := operations(f.ownLoad(in.From.Windows))
	elsewhere, _ := operations(to)
	for i, t := range f.totals {
		one := Predicted{Kind: t.kind, Median: &Value{}, P99: &Value{}}
		slices.Sort(out.times[i])
		buckets := out.inStorage(i) * math.Hypot(f.coarse(i, here), f.coarse(i, elsewhere))
		for q, v := range map[float64]*Value{0.5: one.Median, 0.99: one.P99} {
			v.Now, v.Expected = t.response.Quantile(q), quantile(out.times[i], q)
			squares := 0.0
			for _, d := range []float64{modelError[q], f.off(i, q), vague[i][q], buckets, t.response.unsure(q)} {
				squares += d * d
			}
			model := deviations * math.Sqrt(squares)
			v.Low, v.High = spread[i][q].interval(v.Expected, model, windows)
			if spread[i][q].count() < leastSpread || !v.usable() {
				f.doubt(i, noNumber(t.kind))
			}
		}
		if f.doubts[i] != nil {
			one = Predicted{Kind: t.kind, Refusal: f.doubts[i]}
		}
		p.Statements = append(p.Statements, one)
	}
	if refused := f.ofMost(); refused != nil {
		return refused
	}
	for _, t := range f.rare {
		p.Statements = append(p.Statements, Predicted{Kind: t.kind, Refusal: f.tooRare(t)})
	}
	p.notes(in, f, there)
	p.ofSizes(f, here, elsewhere)
	p.ofVolumes(in.To, volumes, spread)
	return nil
}

// simulated is a quantile of a kind, simulated where the workload is now; off its distance from the measured one.
func (f *fitted) simulated(i int, q float64) float64 {
	slices.Sort(f.again.times[i])
	return quantile(f.again.times[i], q)
}

func (f *fitted) off(i int, q float64) float64 {
	return math.Abs(math.Log(f.simulated(i, q) / f.totals[i].response.Quantile(q)))
}

// lead is the operation whose rate measures how much load there is.
func (f *fitted) lead() string {
	for _, name := range []string{"sync", "flush", "write"} {
		if f.flush[name] > 0 {
			return name
		}
	}
	return "read"
}

// perSecond is how many of these a flow makes.
func (f *fitted) perSecond(r run) float64 {
	if name := f.lead(); name != "read" {
		return r.flushes * float64(f.flush[name]) / r.seconds
	}
	n := 0.0
	for i, k := range f.kinds {
		n += float64(len(r.times[i])) * k.reads
	}
	return n / r.seconds
}

// like picks the windows of the class in which its load was like that of the workload there.
func (f *fitted) like(in *Input) ([]Load, *Refusal) {
	next := fmt.Sprintf("put the workload's load on a volume of %s for a while, such as loadgen probe --storageclass=%s, or loadgen pgbench, and predict again", in.To.Name, in.To.Name)
	if len(in.To.Windows) == 0 {
		return nil, &Refusal{Unmeasured, "nothing was measured of class " + in.To.Name, next}
	}
	from, _ := operations(in.From.Windows)
	lead := f.lead()
	pool := in.To.Windows
	var rate float64
	// Twice: how much load it makes there depends on how long its operations take at that load.
	for range 2 {
		there, refused := f.on(pool)
		if refused != nil {
			return nil, refused
		}
		rate = f.perSecond(there.simulate(turns, seed))
		pool = nil
		for _, w := range in.To.Windows {
			if r := w.rate(lead); r >= rate/likeLoad && r <= rate*likeLoad && likeSizes(from, w) {
				pool = append(pool, w)
			}
		}
		if len(pool) < LeastWindows {
			break
		}
	}
	if len(pool) < LeastWindows {
		low, high := math.Inf(1), 0.0
		for _, w := range in.To.Windows {
			low, high = min(low, w.rate(lead)), max(high, w.rate(lead))
		}
		return nil, &Refusal{Unlike, fmt.Sprintf("the workload would make %s operations of kind %s a second there; %d of %d windows of class %s were measured at like load and size of operations (%s to %s a second in all), %d are needed",
			digits(rate), lead, len(pool), len(in.To.Windows), in.To.Name, digits(low), digits(high), LeastWindows), next}
	}
	return pool, nil
}

// on is the same load on other storage.
func (f *fitted) on(windows []Load) (flow, *Refusal) {
	ops, _ := operations(windows)
	there := f.flow
	there.storage = storage{}
	for name, n := range f.flush {
		if _, ok := ops[name]; n > 0 && !ok {
			return there, &Refusal{Unmeasured, "no operation of kind " + name + " was measured of the class to predict for", "measure both classes in the same way"}
		}
	}
	there.storage.flush = visits(f.flush, f.scale, ops)
	there.kinds = slices.Clone(f.kinds)
	for i, k := range there.kinds {
		if k.reads == 0 {
			continue
		}
		if o, ok := ops["read"]; ok {
			there.storage.read = newSampler(o.Times)
			continue
		}
		there.kinds[i].reads = 0
		if f.waitsToRead(i) {
			if len(f.flush) == 0 {
				return there, noReadThere()
			}
			there.kinds[i].own.cpu += f.totals[i].mean("read")
		}
	}
	return there, nil
}

// room reports whether CPUs or sessions would run out.
func (f *fitted) room(w Workload, out run) *Refusal {
	n := 0.0
	for _, times := range out.times {
		n += float64(len(times))
	}
	if refused := saturated(w, f.totalCPU(w)*max(n/out.seconds/(f.counted/f.seconds), 1), "there"); refused != nil {
		return refused
	}
	if f.clients == 0 && w.Sessions > 0 && out.underWay > mostCPU*float64(w.Sessions) {
		return &Refusal{Saturation, fmt.Sprintf("%.0f statements would be under way at once, of %d sessions: statements would come more slowly than they do now, or wait before they reach the server", out.underWay, w.Sessions),
			"if the sessions wait for their answers, set how many work: --clients"}
	}
	return nil
}
