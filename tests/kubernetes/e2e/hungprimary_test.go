//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// shop is a PostgreSQL whose first instance is on the class held. Its second one comes when the class is another one.
const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: postgresql.cnpg.io/v1
kind: Cluster
metadata: {name: shop, namespace: shop}
spec:
  instances: 1
  imageName: ` + postgresqlImage + `
  storage: {size: 1Gi, storageClass: ` + held + `}
  resources: {requests: {cpu: 50m, memory: 256Mi}}
  stopDelay: 10
  smartShutdownTimeout: 5
  postgresql: {parameters: {shared_buffers: 64MB, max_wal_size: 512MB, checkpoint_timeout: 30s}}
  bootstrap: {initdb: {database: app, owner: app}}
`

// hangPrimary repeats CloudNativePG's issue 10678: the volume of a primary hangs, that of its standby does not, and the operator leaves
// the primary what it is, mostly. Somebody is paged for the disk, and which server and which claim are stalled is known. What the operator
// does meanwhile is written down, and what it does when a person deletes the primary's pod, as the reporter did.
func (n *node) hangPrimary(disk *rig.SlowDisk, pages *pager) {
	n.t.Helper()
	n.apply(shop)
	defer func() {
		n.kubectl("delete", "namespace", "shop", "--timeout=5m")
		testkit.Eventually(n.t, defaultTimeout, n.none(`plumbline_server_info{server=~"shop/.*"}`))
		// The databases of the class held were stalled as well.
		n.awaitDatabases()
		testkit.Eventually(n.t, defaultTimeout, n.none(`volume:stalled_seconds:max`))
	}()
	n.kubectl("wait", "--for=condition=Ready", "cluster/shop", "--namespace=shop", "--timeout=5m")
	n.kubectl("patch", "cluster/shop", "--namespace=shop", "--type=merge", `--patch={"spec": {"instances": 2, "storage": {"storageClass": "`+control+`"}}}`)
	testkit.Eventually(n.t, defaultTimeout, func() error {
		if ready := n.shop("{.status.readyInstances}"); ready != "2" {
			return errors.New("ready instances: " + ready)
		}
		return nil
	})
	w := n.watch("shop", "shop", held)
	defer w.end()
	testkit.Eventually(n.t, defaultTimeout, n.some(`server:volume:info{server="shop/shop-1", storageclass="`+held+`"}`))
	testkit.Eventually(n.t, defaultTimeout, n.some(`server:volume:info{server="shop/shop-2", storageclass="`+control+`"}`))

	// Until then Alertmanager takes it for the same page.
	testkit.Eventually(n.t, 2*defaultTimeout, func() error {
		if open := pages.open("page"); len(open) > 0 {
			return fmt.Errorf("not resolved are %v", open)
		}
		return nil
	})

	w.outage("the primary's volume hangs", func() {
		began := time.Now()
		for _, d := range []*rig.Delay{disk.Reads, disk.Writes, disk.Syncs} {
			d.Hang()
			defer d.Release()
		}
		var page *notice
		paged, state := map[string]float64{}, ""
		// A minute and a half, in which the operator could do what it does.
		testkit.Eventually(n.t, defaultTimeout, func() error {
			seconds := time.Since(began).Seconds()
			for _, one := range pages.since("page", began) {
				if page == nil && one.labels["device"] == filepath.Base(disk.Device) {
					page = &one
				}
				text := fmt.Sprint(one.labels)
				if _, known := paged[text]; !known {
					paged[text] = one.at.Sub(began).Seconds()
					n.note("%4.0f s paged: %s", paged[text], text)
				}
			}
			if now := n.shop("primary {.status.currentPrimary}, ready {.status.readyInstances}, phase {.status.phase}"); now != state {
				n.note("%4.0f s the operator: %s", seconds, now)
				state = now
			}
			if seconds < 90 {
				return errors.New("it is not over yet")
			}
			return nil
		})
		s, err := w.read()
		n.must(err)
		n.note("%4.0f s the oldest transaction waits for %.0f s", time.Since(began).Seconds(), s.oldest)
		// The disk has the volumes of three servers, and one page reports it, with their claims.
		for _, expression := range []string{`server:stuck_seconds:max{server="shop/shop-1"} > 30`, `volume:stalled_seconds:max{volume="` + n.volumeOf("shop", "shop-1") + `"} > 30`} {
			testkit.Eventually(n.t, time.Minute, n.some(expression))
		}
		alerts, err := n.firing("DeviceStalled")
		n.must(err)
		text := ""
		for _, a := range alerts {
			text += a.Annotations["summary"] + " " + a.Annotations["description"]
		}
		n.note("the page: %s", text)
		if !strings.Contains(text, "shop/shop-1") || strings.Contains(text, "shop/shop-2") {
			n.t.Error("the page does not distinguish the hung claim from the other one")
		}
		testkit.Eventually(n.t, time.Second, n.none(`server:stuck_seconds:max{server="shop/shop-2"} > 30`))
		// Its probes see the hung disk or not, by what they meet there.
		unseen := n.shop("{.status.currentPrimary}") == "shop-1"
		n.note("the operator saw nothing: %v", unseen)
		switch {
		case page == nil:
			n.t.Errorf("nobody is paged for the primary's disk; paged: %v", paged)
		case page.at.Sub(began) > time.Minute:
			n.t.Errorf("the page came after %s", page.at.Sub(began))
		}
		if unseen && s.oldest < 60 {
			n.t.Errorf("the oldest transaction waits for %.1f s after a minute and a half", s.oldest)
		}
		words := n.plumbline("why", "--namespace=shop", "shop-1")
		n.note("kubectl plumbline why: %s", words)
		if !strings.Contains(words, "it is stalled") {
			n.t.Error("kubectl plumbline why does not report that it is stalled")
		}
		// The person's part, while the volume still hangs.
		n.kubectl("delete", "pod", "shop-1", "--namespace=shop", "--grace-period=0", "--force")
		deleted := time.Now()
		err = testkit.Await(90*time.Second, func() error {
			if now := n.shop("{.status.currentPrimary}"); now != "shop-2" {
				return errors.New("the primary is still " + now)
			}
			return nil
		})
		n.note("%4.0f s after the pod's deletion: primary %s (%v)", time.Since(deleted).Seconds(), n.shop("{.status.currentPrimary}, phase {.status.phase}"), err)
		n.must(err)
	})
}

// shop reads of the cluster's object.
func (n *node) shop(path string) string {
	n.t.Helper()
	text, err := n.try("get", "cluster/shop", "--namespace=shop", "--output=jsonpath="+path)
	if err != nil {
		return err.Error()
	}
	return text
}

// note logs what happens to the primary.
func (n *node) note(format string, a ...any) {
	n.t.Helper()
	n.keepLine("hungprimary.txt", format, a...)
}

// keepLine logs a line, and leaves it in a file of build/e2e.
func (n *node) keepLine(file, format string, a ...any) {
	n.t.Helper()
	line := fmt.Sprintf(format, a...)
	n.t.Log(line)
	n.report(file, line+"\n")
}
