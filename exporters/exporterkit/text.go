package exporterkit

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// plainText answers scrapes in Prometheus' text format without a copy of all series: for the million series of a large
// cluster such a copy takes a gigabyte. The series of sets come from there, and all others from the registry. Clients
// that do not accept text get what other has.
func plainText(sets []*Set, registry prometheus.Gatherer, log *slog.Logger, other http.Handler) http.Handler {
	turns := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if accept := r.Header.Get("Accept"); accept != "" && !strings.Contains(accept, "text/plain") && !strings.Contains(accept, "*/*") {
			other.ServeHTTP(w, r)
			return
		}
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		default:
			http.Error(w, fmt.Sprintf("Limit of concurrent requests reached (%d), try again later.", maxScrapes), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
		body := io.Writer(w)
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			packed, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // which is a level
			defer packed.Close()
			body = packed
		}
		out := bufio.NewWriter(body)
		defer out.Flush()
		families, err := registry.Gather()
		if err != nil {
			log.Error("metrics of the program itself", "err", err)
		}
		for _, f := range families {
			_, _ = expfmt.MetricFamilyToText(out, f) // into memory, see whole
		}
		for _, set := range sets {
			set.text(out)
		}
	})
}

// text writes all series of a set.
func (s *Set) text(out *bufio.Writer) {
	var all []*series
	kit := newRendering("", math.MaxInt, s.once) // of the set's own
	s.each(func(m prometheus.Metric) {
		one, ok := m.(*series)
		if !ok {
			var err error
			if one, err = kit.render(m); err != nil {
				return // which of MustNewConstMetric's there is none
			}
		}
		all = append(all, one)
	})
	slices.SortStableFunc(all, func(a, b *series) int { return strings.Compare(a.name, b.name) })
	for i, one := range all {
		first := i == 0 || all[i-1].name != one.name
		if one.sample == nil {
			var text strings.Builder
			_, _ = expfmt.MetricFamilyToText(&text, &dto.MetricFamily{Name: &one.name, Help: &one.help, Type: &one.kind, Metric: []*dto.Metric{one.dto}})
			for line := range strings.Lines(text.String()) {
				if first || !strings.HasPrefix(line, "#") {
					out.WriteString(line)
				}
			}
			continue
		}
		if first {
			fmt.Fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", one.name, helpEscapes.Replace(one.help), one.name, strings.ToLower(one.kind.String()))
		}
		one.line(out)
	}
}

var (
	helpEscapes  = strings.NewReplacer("\\", `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)
)

// line writes a sample.
func (s *series) line(out *bufio.Writer) {
	out.WriteString(s.name)
	separator := byte('{')
	for _, i := range s.sorted {
		out.WriteByte(separator)
		separator = ','
		out.WriteString(s.labels[i])
		out.WriteString(`="`)
		if value := s.sample.labels[i]; strings.ContainsAny(value, "\\\n\"") {
			_, _ = labelEscapes.WriteString(out, value)
		} else {
			out.WriteString(value)
		}
		out.WriteByte('"')
	}
	if separator == ',' {
		out.WriteByte('}')
	}
	out.WriteByte(' ')
	out.Write(strconv.AppendFloat(out.AvailableBuffer(), s.sample.value, 'g', -1, 64)) // also NaN and +Inf
	out.WriteByte('\n')
}
