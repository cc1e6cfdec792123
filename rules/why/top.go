package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/plumbline/plumbline/rules/layers"
)

// Top is where the time of the queries of some servers went in a window.
type Top struct {
	At     time.Time
	Window time.Duration
	// Servers are those of the subjects, Queries their queries in the order that was requested.
	Servers []Target
	Queries []QueryTimes
	// Unidentified are the servers' statements that count in the query "other" for lack of an identifier.
	Unidentified []UnidentifiedStatements
}

// QueryTimes is where the time of one query of a server went, or of its queries without series of their own.
type QueryTimes struct {
	Target Target
	// ID is the server's identifier, as pg_stat_statements has it, performance_schema's digest, or "other". Text is empty
	// unless Prometheus has it, from an exporter that exports texts.
	ID, Text string
	// Count is how many of its statements ended in the window, Misses how many of their file reads the page cache
	// did not have; NaN if that is unknown.
	Count, Misses float64
	// Before is the mean of one statement in the hour before the last one; NaN if that is unknown.
	Before float64
	// Phases are the seconds of all its statements, by phase.
	Phases []Layer
	// Share is its part of the time of all queries of the servers.
	Share float64
}

// UnidentifiedStatements is how many statements of a server have no identifier, by the agent's reason.
type UnidentifiedStatements struct {
	Server, Reason string
	Count          float64
}

// grownQuery is how many times as long as before a query's statement takes, if that is worth a word.
const grownQuery = 1.5

// Grown reports whether a statement of the query takes far longer than it did.
func (q QueryTimes) Grown() bool { return q.Before > 0 && q.Mean() > grownQuery*q.Before }

// known is a value of a map; NaN if it has none.
func known(values map[string]float64, id string) float64 {
	if v, ok := values[id]; ok {
		return v
	}
	return math.NaN()
}

// digested are the database systems whose queries are distinguished by their own digests.
var digested = []string{"mysql", "mariadb"}

// Seconds is the time of all its statements.
func (q QueryTimes) Seconds() float64 { return sum(q.Phases) }

// Mean is the time of one statement; NaN if none ended.
func (q QueryTimes) Mean() float64 {
	if !(q.Count > 0) {
		return math.NaN()
	}
	return q.Seconds() / q.Count
}

// in is its time in some phases.
func (q QueryTimes) in(phases ...string) (seconds float64) {
	for _, p := range q.Phases {
		if slices.Contains(phases, p.Name) {
			seconds += p.Seconds
		}
	}
	return seconds
}

// Orders are what queries can be ordered by: the time of all their statements, of one, how many they are, their reads
// beyond the page cache, or the time in a phase.
var Orders = append([]string{"time", "mean", "count", "misses"}, layers.Names(layers.IsPhase)...)

// by is the value by which an order sorts.
func (q QueryTimes) by(order string) float64 {
	switch order {
	case "", "time":
		return q.Seconds()
	case "mean":
		return q.Mean()
	case "count":
		return q.Count
	case "misses":
		return q.Misses
	}
	return q.in(order)
}

// FindTop finds the queries of the servers of subjects, the largest by one of the Orders first. It fails if Prometheus
// knows none of the subjects.
func FindTop(ctx context.Context, api API, subjects []Subject, at time.Time, window time.Duration, order string) (*Top, error) {
	a := newQuerier(ctx, api, at, window)
	var targets []Target
	var unknown []error
	for _, s := range subjects {
		of, err := a.known(s)
		if err != nil && !errors.Is(err, ErrUnknown) {
			return nil, err
		}
		targets, unknown = append(targets, of...), append(unknown, err)
	}
	if len(targets) == 0 {
		return nil, errors.Join(unknown...)
	}
	t := &Top{At: at, Window: window}
	for _, target := range targets {
		if target.Server == "" || slices.ContainsFunc(t.Servers, func(o Target) bool { return o.key() == target.key() }) {
			continue
		}
		b := a.about(target)
		t.Servers, t.Queries = append(t.Servers, target), append(t.Queries, b.queryTimes()...)
		for reason, n := range b.by("query unknown", "reason") {
			if n > 0 {
				t.Unidentified = append(t.Unidentified, UnidentifiedStatements{target.Server, reason, n})
			}
		}
	}
	if *a.err != nil {
		return nil, *a.err
	}
	all := 0.0
	for _, q := range t.Queries {
		all += q.Seconds()
	}
	for i := range t.Queries {
		t.Queries[i].Share = t.Queries[i].Seconds() / all
	}
	slices.SortFunc(t.Queries, func(x, y QueryTimes) int {
		return cmp.Or(cmp.Compare(y.by(order), x.by(order)), strings.Compare(x.Target.Server, y.Target.Server), strings.Compare(x.ID, y.ID))
	})
	slices.SortFunc(t.Unidentified, func(x, y UnidentifiedStatements) int {
		return cmp.Or(strings.Compare(x.Server, y.Server), strings.Compare(x.Reason, y.Reason))
	})
	return t, nil
}

// digestTimes are the queries of a MySQL or MariaDB server, in no order, by performance_schema's digests as its exporter
// exports them. It has times on a CPU (MySQL since 8.0.28) and in waits for locks; all else is the rest.
func (a *querier) digestTimes() (all []QueryTimes) {
	spent := a.vector("digests")
	if len(spent) == 0 {
		return nil
	}
	counts, before, cpu, locks := a.by("digest statements", "digest"), a.by("digest before", "digest"), a.by("digest cpu", "digest"), a.by("digest locks", "digest")
	for _, v := range spent {
		id, seconds := string(v.Metric["digest"]), figure(v.Value)
		if !(seconds > 0) {
			continue
		}
		q := QueryTimes{Target: a.target, ID: id, Text: string(v.Metric["digest_text"]), Count: counts[id], Misses: math.NaN(), Before: known(before, id)}
		for _, part := range []Layer{{layers.CPU, cpu[id]}, {layers.Wait, locks[id]}, {layers.Rest, seconds}} {
			if part.Seconds = min(part.Seconds, seconds); part.Seconds > 0 {
				q.Phases, seconds = append(q.Phases, part), seconds-part.Seconds
			}
		}
		all = append(all, q)
	}
	return all
}

// queryTimes are the queries of the target's server that spent time or ended, in no order.
func (a *querier) queryTimes() (all []QueryTimes) {
	if slices.Contains(digested, a.target.Engine) {
		return a.digestTimes()
	}
	spent := map[string][]Layer{}
	for _, v := range a.vector("query phases") {
		if seconds := figure(v.Value); seconds > 0 {
			id := string(v.Metric["queryid"])
			spent[id] = append(spent[id], Layer{string(v.Metric["phase"]), seconds})
		}
	}
	if len(spent) == 0 {
		return nil
	}
	counts, misses, before, texts := a.by("query statements", "queryid"), a.by("query misses", "queryid"), a.by("query before", "queryid"), map[string]string{}
	for _, v := range a.vector("query texts") {
		texts[string(v.Metric["queryid"])] = string(v.Metric["query"])
	}
	for id, phases := range spent {
		slices.SortFunc(phases, func(x, y Layer) int { return layers.Compare(x.Name, y.Name) })
		q := QueryTimes{Target: a.target, ID: id, Text: texts[id], Count: counts[id], Misses: known(misses, id), Before: known(before, id), Phases: phases}
		all = append(all, q)
	}
	return all
}

// Notes are what a list of queries does not show, and why: one sentence each.
func (t *Top) Notes() (notes []string) {
	for _, s := range t.Servers {
		found := slices.ContainsFunc(t.Queries, func(q QueryTimes) bool { return q.Target.key() == s.key() })
		switch {
		case slices.Contains(digested, s.Engine) && found:
			notes = append(notes, fmt.Sprintf("Server %s: its queries are performance_schema's digests, from mysqld_exporter: CPU, locks and the rest, without the agent's phases.", s.Server))
		case slices.Contains(digested, s.Engine):
			notes = append(notes, fmt.Sprintf("Server %s: no digest has time in the last %s; mysqld_exporter exports them with --collect.perf_schema.eventsstatements, on a target with the label server.", s.Server, Span(t.Window)))
		case s.Engine != "postgresql":
			notes = append(notes, fmt.Sprintf("Server %s: queries of %s are not distinguished.", s.Server, s.Engine))
		case !found:
			notes = append(notes, fmt.Sprintf("Server %s: no query has time in the last %s; the agent's --query.top=0 exports none.", s.Server, Span(t.Window)))
		}
	}
	for _, u := range t.Unidentified {
		why := map[string]string{
			"none":   "the server gives them none: compute_query_id is off, they failed before they had one, or they are function calls, as for large objects, or prepared utility statements such as COMMIT, beside pg_stat_statements",
			"unread": "the agent cannot read it, and its log has the reason",
		}[u.Reason]
		notes = append(notes, fmt.Sprintf("Server %s: %.0f statements in other have no identifier; %s.", u.Server, u.Count, cmp.Or(why, u.Reason)))
	}
	return notes
}

// topBar is the length of the longest bar of a query, topText that of a text.
const (
	topBar  = 20
	topText = 60
)

// Top prints queries, at most so many: each with its phases as a bar, all to one scale.
func (p *Printer) Top(t *Top, most int) {
	shown := t.Queries[:min(most, len(t.Queries))]
	if len(shown) > 0 {
		fmt.Fprintf(p.out, "Queries of the last %s, to %s; %d of %d.\n\n", Span(t.Window), t.At.UTC().Format("2006-01-02 15:04:05 UTC"), len(shown), len(t.Queries))
		p.queries(t, shown)
	}
	for i, note := range t.Notes() {
		if i == 0 && len(shown) > 0 {
			fmt.Fprintln(p.out)
		}
		p.Wrap("- " + note)
	}
}

// queries prints a line for each query, and a legend of the phases.
func (p *Printer) queries(t *Top, shown []QueryTimes) {
	longest, used := 0.0, map[string]bool{}
	for _, q := range shown {
		longest = max(longest, q.Seconds())
	}
	server := func(string) string { return "" }
	if len(t.Servers) > 1 {
		width := len("server")
		for _, q := range shown {
			width = max(width, utf8.RuneCountInString(q.Target.Server))
		}
		server = func(name string) string { return fmt.Sprintf("%-*s  ", width, name) }
	}
	fmt.Fprintf(p.out, "%s%-20s %6s %9s %8s %8s %9s  %-*s  %s\n", server("server"), "queryid", "time %", "calls", "ms a one", "before", "misses", topBar, "where the time goes", "query")
	for _, q := range shown {
		columns := max(1, int(math.Round(q.Seconds()/longest*topBar)))
		for i, n := range share(q.Phases, columns) {
			used[q.Phases[i].Name] = used[q.Phases[i].Name] || n > 0
		}
		misses := "-"
		if Known(q.Misses) {
			misses = count(q.Misses)
		}
		line := fmt.Sprintf("%s%-20s %6s %9.0f %8s %8s %9s  %s%*s  %s", server(q.Target.Server), q.ID, percent(q.Share), q.Count, dash(q.Mean()), dash(q.Before), misses,
			p.stack(q.Phases, columns), topBar-columns, "", cut(q.Text, topText))
		fmt.Fprintln(p.out, strings.TrimRight(line, " "))
	}
	var legend []string
	for _, phase := range slices.SortedFunc(maps.Keys(used), layers.Compare) {
		if used[phase] {
			legend = append(legend, p.block(phase, 1)+" "+phase)
		}
	}
	io.WriteString(p.out, strings.Join(legend, "  ")+"\n")
}

// cut is a text in one line of at most so many characters.
func cut(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}
