package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/why"
)

// selectors are the labels by which charts and operators mark Prometheus' services, in the order in which they are
// preferred.
var selectors = []string{"operated-prometheus=true", "app.kubernetes.io/name=prometheus", "app=prometheus", "app=kube-prometheus-stack-prometheus"}

// service is one that may be Prometheus'.
type service struct {
	Metadata meta
	Spec     struct {
		Ports []struct {
			Name string
			Port int
		}
	}
}

// candidate is a service that calls itself Prometheus'. Every user who may create services can create one.
type candidate struct {
	// where is NAMESPACE/SERVICE:PORT, selector the label by which it was found.
	namespace, where, selector string
	api                        promv1.API
	// err is why it is not the one: errEmpty if it responds and has none of our series.
	err error
}

// defaultCandidateTimeout is the timeout of a candidate, and atOnce how many are queried at the same time: a user who
// may create services can create many that never respond.
const (
	defaultCandidateTimeout = 10 * time.Second
	atOnce                  = 32
)

// nameIt is what to do if Prometheus cannot be found.
const nameIt = "name it with --prometheus=NAMESPACE/SERVICE:PORT, or its address with --prometheus-url"

var errEmpty = errors.New("it has none of Plumbline's series")

// findPrometheus returns the Prometheus that the user named, or the one that is there.
func (c *cluster) findPrometheus(ctx context.Context) (promv1.API, error) {
	p, err := c.find(ctx)
	if err != nil {
		return nil, err
	}
	return &warned{p, c, map[string]bool{}}, nil
}

func (c *cluster) find(ctx context.Context) (promv1.API, error) {
	switch {
	case c.o.url != "" && c.o.prometheus != "":
		return nil, usageError{fmt.Errorf("both --prometheus-url and --prometheus are set; unset one, maybe in the environment: PLUMBLINE_PROMETHEUS_URL, PLUMBLINE_PROMETHEUS")}
	case c.o.url != "":
		u, err := url.Parse(c.o.url)
		if err != nil {
			return nil, usageError{fmt.Errorf("--prometheus-url: %w", errors.Unwrap(err))} // the whole error has the password, if there is one
		}
		c.choose(u.Redacted(), "as --prometheus-url or PLUMBLINE_PROMETHEUS_URL names it")
		return c.prometheusAt(c.o.url, http.DefaultClient, false)
	case c.o.prometheus != "":
		namespace, rest, ok := strings.Cut(c.o.prometheus, "/")
		name, port, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 || namespace == "" || name == "" || port == "" {
			return nil, usageError{fmt.Errorf("--prometheus=%s: want NAMESPACE/SERVICE:PORT", c.o.prometheus)}
		}
		c.choose(c.o.prometheus, "as --prometheus or PLUMBLINE_PROMETHEUS names it")
		return c.prometheusBehind(namespace, name, port)
	}
	all, err := c.candidates(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, errors.New("no service of a Prometheus found; " + nameIt)
	}
	c.tryAll(ctx, all)
	one, err := c.only(all)
	if err != nil {
		return nil, err
	}
	c.choose(one.where, "found by its label "+one.selector+"; another can be named with --prometheus=NAMESPACE/SERVICE:PORT")
	return one.api, nil
}

// choose notes which Prometheus is queried, and why that one.
func (c *cluster) choose(where, how string) {
	c.chosen = why.Clean(where)
	c.note("Prometheus is %s, %s.", where, how)
}

// note writes what is not part of the answer.
func (c *cluster) note(format string, args ...any) {
	if c.notes != nil {
		fmt.Fprintln(c.notes, program+":", why.Clean(fmt.Sprintf(format, args...)))
	}
}

// candidates lists the services that call themselves Prometheus'.
func (c *cluster) candidates(ctx context.Context) (all []*candidate, err error) {
	for _, selector := range selectors {
		var list struct{ Items []service }
		if err := c.get(ctx, "/api/v1/services", url.Values{"labelSelector": {selector}}, &list); err != nil {
			return nil, fmt.Errorf("looking for Prometheus: %w; %s", err, nameIt)
		}
		for _, s := range list.Items {
			port, ok := webPort(s)
			where := fmt.Sprintf("%s/%s:%d", s.Metadata.Namespace, s.Metadata.Name, port)
			if !ok || slices.ContainsFunc(all, func(o *candidate) bool { return o.where == where }) {
				continue
			}
			p, err := c.prometheusBehind(s.Metadata.Namespace, s.Metadata.Name, strconv.Itoa(port))
			if err != nil {
				return nil, err
			}
			all = append(all, &candidate{namespace: s.Metadata.Namespace, where: where, selector: selector, api: p})
		}
	}
	return all, nil
}

func webPort(s service) (int, bool) {
	for _, p := range s.Spec.Ports {
		if slices.Contains([]string{"web", "http-web", "http"}, p.Name) || p.Port == 9090 || len(s.Spec.Ports) == 1 {
			return p.Port, true
		}
	}
	return 0, false
}

// tryAll queries each candidate for our series, all at the same time and each with a deadline of its own.
func (c *cluster) tryAll(ctx context.Context, all []*candidate) {
	var wait sync.WaitGroup
	turns := make(chan struct{}, atOnce)
	for _, one := range all {
		turns <- struct{}{}
		wait.Go(func() {
			defer func() { <-turns }()
			one.err = c.try(ctx, one.api)
		})
	}
	wait.Wait()
}

func (c *cluster) try(all context.Context, p promv1.API) error {
	timeout := cmp.Or(c.candidateTimeout, defaultCandidateTimeout)
	ctx, cancel := context.WithTimeout(all, timeout)
	defer cancel()
	v, _, err := p.Query(ctx, "count(server:volume:info or plumbline_volume_info)", c.now())
	if err != nil {
		if ctx.Err() != nil && all.Err() == nil {
			return fmt.Errorf("no answer within %v", timeout)
		}
		return err
	}
	if vector, ok := v.(model.Vector); !ok || len(vector) == 0 {
		return errEmpty
	}
	return nil
}

// only returns the candidate that has our series. Services in one namespace belong to one Prometheus, and the first of
// them is taken. With several namespaces, one may pose as Prometheus, and the user must name the right one.
func (c *cluster) only(all []*candidate) (*candidate, error) {
	var ours, empty []*candidate
	for _, one := range all {
		switch {
		case one.err == nil:
			ours = append(ours, one)
		case errors.Is(one.err, errEmpty):
			empty = append(empty, one)
		}
	}
	what := "with Plumbline's series"
	if len(ours) == 0 && c.silent {
		ours, what = empty, "none with Plumbline's series"
	}
	var others []string
	for _, one := range all {
		if one.err != nil && !slices.Contains(ours, one) {
			others = append(others, one.where+": "+why.Line(one.err))
		}
	}
	if len(ours) == 0 {
		return nil, fmt.Errorf("no Prometheus with Plumbline's series: %s; name another with --prometheus=NAMESPACE/SERVICE:PORT", some(others))
	}
	var places []string
	for _, one := range ours {
		places = append(places, one.where+" (label "+one.selector+")")
	}
	if slices.ContainsFunc(ours, func(o *candidate) bool { return o.namespace != ours[0].namespace }) {
		return nil, fmt.Errorf("several namespaces have a service of a Prometheus, %s, and whoever may make services can pose as one: %s; choose one with --prometheus=NAMESPACE/SERVICE:PORT", what, some(places))
	}
	if len(others) > 0 {
		c.note("Not taken for Prometheus: %s.", some(others))
	}
	return ours[0], nil
}
