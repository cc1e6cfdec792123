package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/pictures/scenario"
	"github.com/plumbline/plumbline/tests/rig"
)

// ready is how long a server may take to answer, on a busy machine.
const ready = 3 * time.Minute

// startPrometheus returns the address of a Prometheus that scrapes nothing and has what was recorded.
func startPrometheus(ctx context.Context, t *rig.Scope, folder string, recorded []scenario.Recorded) string {
	address, err := freeport.Address()
	t.Check(err)
	t.Check(os.MkdirAll(folder, 0o755))
	config := filepath.Join(folder, "prometheus.yml")
	t.Check(os.WriteFile(config, nil, 0o600))
	rig.Start(t, exec.CommandContext(ctx, rig.Tool(t, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+filepath.Join(folder, "data"),
		"--web.listen-address="+address, "--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=100y", "--log.level=warn"))
	rig.Eventually(t, ready, func() error { return answers(ctx, "http://"+address+"/-/ready") })
	// Prometheus takes the samples of a series in their order, and none much older than its newest.
	const portion = 15 * time.Minute
	end := scenario.End.Add(scenario.Step)
	for from := scenario.Begin(); from.Before(end); from = from.Add(portion) {
		t.Check(write(ctx, address, recorded, from.UnixMilli(), from.Add(portion).UnixMilli()))
	}
	return address
}

// write sends the samples of a time to Prometheus.
func write(ctx context.Context, address string, recorded []scenario.Recorded, from, to int64) error {
	var request prompb.WriteRequest
	for _, r := range recorded {
		one := prompb.TimeSeries{}
		for _, f := range r.Floats {
			if f.T >= from && f.T < to {
				one.Samples = append(one.Samples, prompb.Sample{Timestamp: f.T, Value: f.F})
			}
		}
		for _, h := range r.Histograms {
			if h.T >= from && h.T < to {
				one.Histograms = append(one.Histograms, prompb.FromFloatHistogram(h.T, h.H))
			}
		}
		if len(one.Samples)+len(one.Histograms) == 0 {
			continue
		}
		r.Metric.Range(func(l labels.Label) { one.Labels = append(one.Labels, prompb.Label{Name: l.Name, Value: l.Value}) })
		request.Timeseries = append(request.Timeseries, one)
	}
	data, err := request.Marshal()
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/api/v1/write", bytes.NewReader(snappy.Encode(nil, data)))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", "application/x-protobuf")
	post.Header.Set("Content-Encoding", "snappy")
	post.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	response, err := http.DefaultClient.Do(post)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return fmt.Errorf("samples refused by Prometheus at %s: %s: %s", address, response.Status, text)
	}
	return nil
}

// answers is nil once a URL answers that all is well.
func answers(ctx context.Context, url string) error {
	_, err := rig.Get(ctx, url)
	return err
}
