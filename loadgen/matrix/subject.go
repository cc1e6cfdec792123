package matrix

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/rules/why"
)

// find queries whose time a run's was. A class may have other databases and volumes than those that were measured, so
// its name decides only where it has one: for fio the volume that this pod has of the class, for a database the server
// that answered. Where that is not known, the error has what to do.
func (r *Runner) find(ctx context.Context, row *Row, target Target, window time.Duration) (*why.Finding, error) {
	class := why.Subject{Class: row.StorageClass}
	alone := func(s why.Subject, hint string) (*why.Finding, error) {
		// Other clients commit, a canary at least; that shows nothing of a run that does not.
		s.AllStatements = row.step.commitsNothing()
		f, err := why.Find(ctx, r.Prometheus, s, row.Ended, window)
		if err == nil && f.Servers > 1 {
			err = fmt.Errorf("there are %d servers or volumes of the %s, and which of them this run was on is not known: %s", f.Servers, s, hint)
		}
		return f, err
	}
	const giveServer = "give the target's server, as the agent calls it"
	if row.step.FIO != nil {
		namespace, pod, inPod := strings.Cut(r.Pod, "/")
		if !inPod {
			return alone(class, "in a pod, give --pod")
		}
		claim, err := r.ownClaim(ctx, row, namespace, pod)
		if err != nil {
			return nil, err
		}
		return alone(why.Subject{Namespace: namespace, Claim: claim}, "claims of one name are in several clusters; give --cluster")
	}
	if row.moved != "" {
		return nil, errors.New(row.moved)
	}
	if row.address != "" {
		f, err := alone(why.Subject{Address: row.address}, "servers of one address are in several clusters; give --cluster")
		if !errors.Is(err, why.ErrUnknown) {
			return f, err
		}
		// The agent does not know each address: not that of a server outside of pods that listens on all.
	}
	if target.Server != "" {
		return alone(why.Subject{Server: target.Server}, "servers of one name are in several clusters; give --cluster")
	}
	f, err := alone(class, giveServer)
	if err != nil || row.address == "" {
		return f, err
	}
	others, err := why.Addresses(ctx, r.Prometheus, f.Target, row.Ended)
	if err == nil && len(others) > 0 {
		err = fmt.Errorf("%s answered, which is not known, and the one server that is known of the %s, %s, is at %s: %s", row.address, class, f.Target.Server, strings.Join(others, ", "), giveServer)
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// ownClaim is this pod's claim of a row's class. Kubernetes names an ephemeral volume's claim by its pod and the
// volume.
func (r *Runner) ownClaim(ctx context.Context, row *Row, namespace, pod string) (string, error) {
	own, err := why.Claims(ctx, r.Prometheus, namespace, row.StorageClass, row.Ended)
	if err != nil {
		return "", err
	}
	own = slices.DeleteFunc(own, func(claim string) bool { return !strings.HasPrefix(claim, pod+"-") })
	if len(own) != 1 {
		return "", fmt.Errorf("pod %s/%s has %d claims of class %s whose volumes are known, by the names of ephemeral volumes' claims; one is needed", namespace, pod, len(own), row.StorageClass)
	}
	return own[0], nil
}

// follow queries where a target's database answers, before a run, and, by what it returns, again after it.
func (r *Runner) follow(ctx context.Context, target Target, row *Row) (after func()) {
	if r.Prometheus == nil || target.DSN == "" || row.step.FIO != nil {
		return func() {}
	}
	before := r.answers(ctx, target)
	return func() {
		switch after := r.answers(context.WithoutCancel(ctx), target); {
		case after == before:
			row.address = before
		case after == "":
			row.moved = "no server reports its address after the run, as one did before"
		case before != "":
			row.moved = "another server answered after the run than before it"
		}
	}
}

// answers queries where a target's database answers now; "" if it does not report it.
func (r *Runner) answers(ctx context.Context, target Target) string {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	address, err := driver.Address(ctx, target.Engine, target.DSN)
	if err != nil {
		r.Log.Warn("the database does not report its address", "storageclass", target.StorageClass, "err", err)
	}
	return address
}

// commitsNothing reports whether a step's statements only read.
func (s Step) commitsNothing() bool {
	return s.Scan != nil || s.Pgbench != nil && s.Pgbench.Builtin == "select-only"
}

// target is a class's.
func (r *Report) target(class string) Target {
	for _, t := range r.Targets {
		if t.StorageClass == class {
			return t
		}
	}
	return Target{StorageClass: class}
}
