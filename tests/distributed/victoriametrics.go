package main

import (
	"context"
	"path/filepath"

	"github.com/plumbline/plumbline/rules/histograms"
	"github.com/plumbline/plumbline/tests/promapi"
)

// startVictoriaMetrics starts one that scrapes the clusters itself, and vmalert with the rules for classic histograms.
func (s *stack) startVictoriaMetrics(ctx context.Context, rules string, clusters []*cluster) {
	http, alertmanager := s.address(), s.startAlertmanager(ctx, "victoria")
	config := s.write("victoria.yml", map[string]any{
		"global":         map[string]any{"scrape_interval": interval.String()},
		"scrape_configs": jobs(clusters, false, func(c *cluster) map[string]string { return map[string]string{"cluster": c.name} }),
	})
	s.start(ctx, "victoria-metrics", http, "victoria-metrics", "-httpListenAddr="+http, "-storageDataPath="+filepath.Join(s.folder, "victoria"), "-promscrape.config="+config,
		"-retentionPeriod=1d", "-memory.allowedPercent=10", "-loggerLevel=WARN",
		// By default an answer leaves out the last 30 s.
		"-search.latencyOffset=0s")
	own := s.address()
	s.start(ctx, "vmalert", own, "vmalert", "-httpListenAddr="+own, "-rule="+rules, "-datasource.url=http://"+http, "-remoteWrite.url=http://"+http, "-remoteRead.url=http://"+http,
		"-notifier.url=http://"+alertmanager, "-evaluationInterval="+interval.String(), "-rule.evalDelay=0s", "-disableAlertgroupLabel", "-loggerLevel=WARN",
		// What a rule records is visible to the next one at once.
		"-remoteWrite.flushInterval=1s")
	server, err := promapi.At("http://" + http)
	s.t.Check(err)
	s.engines = append(s.engines, &engine{"VictoriaMetrics", server, alertmanager, string(histograms.Classic)})
}
