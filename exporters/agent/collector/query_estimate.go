package collector

// estimate is a sum whose parts are not counted, but shown by a sample of it: how it is divided. Its zero value is
// ready.
type estimate struct {
	// sum is how much there was when it was looked at last; pending what of it waits for a sample.
	sum, pending uint64
	// sample is what the sample had then, weights how it was divided lately, and parts how the sum was.
	sample, parts []uint64
	weights       []float64
}

// take adds what came to the sum, as the sample divides it, and returns the parts, which never decrease. What came
// while the sample had nothing is divided as what came before; without any sample as otherwise, and if that is nothing,
// too, it waits.
func (e *estimate) take(sum uint64, sample, otherwise []uint64) []uint64 {
	e.size(len(sample))
	if sum > e.sum {
		e.pending += sum - e.sum
		e.sum = sum
	}
	grew := false
	for i, n := range sample {
		grew = grew || n > e.sample[i]
	}
	total := 0.0
	for i, n := range sample {
		if grew {
			// Half as much as before of what is past, so that few samples do not count for all.
			e.weights[i] /= 2
			if n > e.sample[i] {
				e.weights[i] += float64(n - e.sample[i])
				e.sample[i] = n
			}
		}
		total += e.weights[i]
	}
	weights := e.weights
	if total == 0 {
		weights, total = asWeights(otherwise)
	}
	if total == 0 {
		return e.parts
	}
	pending := e.pending
	for i, w := range weights {
		n := min(uint64(float64(pending)*(w/total)), e.pending)
		e.parts[i] += n
		e.pending -= n
	}
	return e.parts
}

// asWeights makes weights of amounts, and returns their sum.
func asWeights(amounts []uint64) (weights []float64, total float64) {
	for _, n := range amounts {
		weights = append(weights, float64(n))
		total += float64(n)
	}
	return weights, total
}

// size makes room for so many parts.
func (e *estimate) size(n int) {
	if len(e.parts) < n {
		e.sample, e.parts, e.weights = make([]uint64, n), make([]uint64, n), make([]float64, n)
	}
}

// add makes another one's sum part of this one's.
func (e *estimate) add(o *estimate) {
	if len(o.parts) == 0 {
		return
	}
	e.size(len(o.parts))
	e.sum += o.sum
	e.pending += o.pending
	for i := range o.parts {
		e.sample[i] += o.sample[i]
		e.parts[i] += o.parts[i]
		e.weights[i] += o.weights[i]
	}
}
