package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/tests/freeport"
)

// recordedNames are the metrics that rules record, and alerts.
const recordedNames = ".+:.+|ALERTS"

// receiver is a Thanos receiver that gets what the measured Prometheus has.
type receiver struct {
	command     *exec.Cmd
	folder      string
	http, write string
	kept        string
}

// startReceiver starts one; of kept "none" there is none.
func startReceiver(o options) (*receiver, error) {
	if o.receive == "none" {
		return nil, nil
	}
	folder, err := os.MkdirTemp("/var/tmp", "plumbline-scale-")
	if err != nil {
		return nil, err
	}
	r := &receiver{folder: folder, kept: o.receive}
	fail := func(err error) (*receiver, error) { return nil, errors.Join(err, os.RemoveAll(folder)) }
	var addresses []string
	for range 4 {
		one, err := freeport.Address()
		if err != nil {
			return fail(err)
		}
		addresses = append(addresses, one)
	}
	r.http, r.write = addresses[0], addresses[1]
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return fail(err)
	}
	defer log.Close()
	r.command = exec.Command(o.thanos, "receive", "--tsdb.path="+filepath.Join(folder, "data"), "--http-address="+r.http, "--remote-write.address="+r.write,
		"--grpc-address="+addresses[2], "--receive.capnproto-address="+addresses[3], `--label=receive="0"`, "--tsdb.retention=0d", "--log.level=warn")
	r.command.Stdout, r.command.Stderr = log, log
	r.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.command.Start(); err != nil {
		return fail(err)
	}
	return r, nil
}

func (r *receiver) stop() error {
	if r == nil {
		return nil
	}
	_ = r.command.Process.Kill()
	_ = r.command.Wait()
	return os.RemoveAll(r.folder)
}

// remoteWrite is the configuration of a Prometheus that sends to it.
func (r *receiver) remoteWrite() []map[string]any {
	w := map[string]any{"url": "http://" + r.write + "/api/v1/receive", "send_native_histograms": true}
	if r.kept == "recorded" {
		w["write_relabel_configs"] = []map[string]any{{"action": "keep", "source_labels": []string{model.MetricNameLabel}, "regex": recordedNames}}
	}
	return []map[string]any{w}
}

// received is what the receiver has and costs.
type received struct{ series, samples, cpu, memory, behind float64 }

// measure queries the Prometheus that scrapes it.
func (r *receiver) measure(ctx context.Context, p *prometheus, o options) (m received, err error) {
	over := model.Duration(o.measure).String()
	for _, q := range []struct {
		to   *float64
		expr string
	}{
		{&m.series, `sum(prometheus_tsdb_head_series{job="receive"})`},
		{&m.samples, `sum(rate(prometheus_tsdb_head_samples_appended_total{job="receive"}[` + over + `]))`},
		{&m.cpu, `rate(process_cpu_seconds_total{job="receive"}[` + over + `])`},
		{&m.memory, `process_resident_memory_bytes{job="receive"}`},
		{&m.behind, `max(prometheus_remote_storage_highest_timestamp_in_seconds - ignoring (remote_name, url) group_right () prometheus_remote_storage_queue_highest_sent_timestamp_seconds)`},
	} {
		if *q.to, err = p.Number(ctx, q.expr); err != nil {
			return m, err
		}
	}
	return m, nil
}

func (m received) cells() []string {
	return []string{"series", fmt.Sprintf("%.0f", m.series), "samples/s", fmt.Sprintf("%.0f", m.samples), "CPUs used", fmt.Sprintf("%.2f", m.cpu),
		"memory", fmt.Sprintf("%.1f GB", m.memory/1e9), "behind", fmt.Sprintf("%.0f s", m.behind)}
}
