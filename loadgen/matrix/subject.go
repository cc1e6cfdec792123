package matrix

import (
	"context"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/rules/why"
)

// subject is whose layers a run's are. A class may have other databases and volumes than those that were measured, so that its name
// tells only where it has one: of a database it is the server that answers, of fio the volume that this pod has of the class. hint is
// what to do where that tells several.
func (r *Runner) subject(ctx context.Context, row *Row, target Target) (s why.Subject, hint string) {
	if row.step.FIO != nil {
		namespace, pod, ok := strings.Cut(r.Pod, "/")
		if ok {
			return why.Subject{Namespace: namespace, Pod: pod, Class: row.StorageClass}, "mount one volume of a class"
		}
		return why.Subject{Class: row.StorageClass}, "in a pod, give --pod"
	}
	if target.Server != "" {
		return why.Subject{Server: target.Server}, "servers of one name are in several clusters; give --cluster"
	}
	class := why.Subject{Class: row.StorageClass}
	if target.DSN == "" {
		return class, giveServer
	}
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	if address, err := driver.Address(ctx, target.Engine, target.DSN); err != nil {
		r.Log.Warn("the database does not say where it answers; its storage class is asked about", "storageclass", target.StorageClass, "err", err)
	} else if address != "" {
		return why.Subject{Address: address}, "servers of one address are in several clusters; give --cluster"
	}
	return class, giveServer
}

const giveServer = "give the target's server, as the agent calls it"

// target is a class's.
func (r *Report) target(class string) Target {
	for _, t := range r.Targets {
		if t.StorageClass == class {
			return t
		}
	}
	return Target{StorageClass: class}
}
