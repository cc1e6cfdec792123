package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/why"
)

// subject reads a target; kind is claim if the user names none. The name of a claim or pod goes into a path of the API
// server's.
func subject(target, namespace string) (kind string, s why.Subject, err error) {
	kind, name, ok := strings.Cut(target, "/")
	if !ok {
		kind, name = "claim", target
	}
	if name == "" {
		return "", s, usageError{fmt.Errorf("%q names nothing; want CLAIM, pod/POD, volume/VOLUME, server/SERVER or class/STORAGECLASS", target)}
	}
	switch kind {
	case "claim", "pvc", "persistentvolumeclaim":
		kind, s = "claim", why.Subject{Namespace: namespace, Claim: name}
	case "pod":
		s = why.Subject{Namespace: namespace, Pod: name}
	case "volume", "pv", "persistentvolume": // as alerts name it
		return "volume", why.Subject{Volume: name}, nil
	case "server":
		return kind, why.Subject{Server: name}, nil
	case "class", "storageclass", "sc":
		return "class", why.Subject{Class: name}, nil
	default:
		return "", s, usageError{fmt.Errorf("%q: no kind %q; want claim, pod, volume, server or class", target, kind)}
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", s, usageError{fmt.Errorf("%q is no name of a %s: %s", name, kind, problems[0])}
	}
	return kind, s, nil
}

// subjects returns the subject named by the user, and what it resolves to: a pod is its claims if they are known, all
// else itself.
func (c *cluster) subjects(ctx context.Context) (target why.Subject, all []why.Subject, err error) {
	kind, target, err := subject(c.o.target, cmp.Or(c.o.namespace, "default")) // as kubectl has it
	if err != nil {
		return target, nil, err
	}
	if c.o.namespace == "" && target.Namespace != "" {
		c.note("The namespace is %s, as there is no kubeconfig that names one; --namespace does.", target.Namespace)
	}
	switch kind {
	case "claim":
		if err := c.claim(ctx, target.Namespace, target.Claim); err != nil {
			return target, nil, err
		}
	case "pod":
		claims, err := c.claimsOf(ctx, target.Namespace, target.Pod)
		if c.unknown(err) {
			c.note("The pod's claims are those that Prometheus has, and of several servers why explains the slowest: %s", why.Line(err))
			break
		}
		if err != nil {
			return target, nil, err
		}
		if len(claims) == 0 {
			return target, nil, fmt.Errorf("pod %s/%s mounts no claim", target.Namespace, target.Pod)
		}
		for _, claim := range claims {
			all = append(all, why.Subject{Namespace: target.Namespace, Claim: claim})
		}
		return target, all, nil
	}
	return target, []why.Subject{target}, nil
}

// why explains a claim, a pod's claims, a server or a class.
func (c *cluster) why(ctx context.Context, w io.Writer, printer *why.Printer) error {
	return c.give(ctx, w, printer, (*cluster).queryWhy)
}

func (c *cluster) queryWhy(ctx context.Context) (*reply, error) {
	_, subjects, err := c.subjects(ctx)
	if err != nil {
		return nil, err
	}
	_, api, err := c.oneCluster(ctx)
	if err != nil {
		return nil, err
	}
	now := c.now()
	d := &answer.Why{Head: c.head(answer.KindWhy, now)}
	var findings []*why.Finding
	var problems []string
	for _, s := range subjects {
		f, err := why.Find(ctx, api, s, now, c.o.window)
		if errors.Is(err, why.ErrUnknown) {
			d.Unknown, problems = append(d.Unknown, why.Clean(s.String())), append(problems, err.Error())
			continue
		}
		if err != nil {
			return nil, err
		}
		findings, d.Items = append(findings, f), append(d.Items, answer.NewFinding(f))
	}
	if len(findings) == 0 {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	write := func(w io.Writer, finding func(*why.Finding)) {
		for _, name := range d.Unknown {
			fmt.Fprintf(w, "%s: Prometheus has nothing of it\n", name)
		}
		for i, f := range findings {
			if i > 0 {
				fmt.Fprintln(w)
			}
			finding(f)
		}
	}
	return &reply{document: d, text: func(w io.Writer, printer *why.Printer) error { write(w, printer.Why); return nil },
		words: func(w io.Writer) { write(w, func(f *why.Finding) { fmt.Fprintln(w, f.Words()) }) }}, nil
}
