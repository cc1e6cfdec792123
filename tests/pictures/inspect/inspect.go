// Package inspect opens pages of a Grafana in a browser without a window and finds what a person would call broken:
// panels with an error or without data, numbers that are none, text that is cut off.
package inspect

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"github.com/plumbline/plumbline/tests/testkit"
)

//go:embed hook.js
var hook string

//go:embed inspect.js
var script string

// Finding is one thing that is wrong on a page.
type Finding struct {
	// Panel is the panel's title; empty is the page itself.
	Panel string `json:"panel"`
	// What is one of the keys of Remedies.
	What string `json:"what"`
	// Text is the page's text there.
	Text string `json:"text"`
}

// Remedies are what to do, for each kind of finding.
var Remedies = map[string]string{
	"error":   "the panel's query or setting is refused: open the panel's inspector",
	"query":   "Grafana's data source refused a query: its log and Prometheus' have the reason",
	"empty":   "give the panel a text for when it is empty (panel.empty), or the scenario the series that it queries",
	"-∞":      "a threshold's range is shown in place of a value: use a fixed colour and value mappings",
	"NaN":     "keep means over nothing out of the query (>= 0)",
	"cut":     "shorten the text, or make the panel or column wider",
	"outside": "the text is to the right of what is seen: fewer or narrower columns, or a wider panel",
	"covered": "texts lie on each other: fewer, or a taller panel",
	"nothing": "the page has no panels: does the dashboard exist, and may everybody see it?",
}

// NoData are Grafana's own words for a panel that has nothing to show and no text of its own.
var NoData = []string{"No data", "No data in response", "Data outside time range", "Data is missing a time field", "Unable to graph data", "Unable to render data"}

// Browser is a browser without a window.
type Browser struct {
	context context.Context
	// noData are the words for a panel without data.
	noData []string
}

// programs are the names that the browser may have.
var programs = []string{"chromium", "chromium-browser", "google-chrome"}

// Program is the path of the browser's program.
func Program() (string, error) {
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("none of %s is installed: tools/install-packages pictures", strings.Join(programs, ", "))
}

// Start starts a browser that reaches this machine only, in a folder of its own. The function ends it. Texts that a
// panel has for want of data count as none, beside NoData.
func Start(ctx context.Context, folder string, want ...string) (*Browser, func(), error) {
	program, err := Program()
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.UserDataDir(folder), chromedp.NoSandbox, // its pages are ours
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.Flag("disable-dev-shm-usage", true),
		chromedp.Flag("lang", "en-US"),
		chromedp.WSURLReadTimeout(testkit.DefaultTimeout),
	)
	allocator, endAllocator := chromedp.NewExecAllocator(ctx, options...)
	context, end := chromedp.NewContext(allocator)
	stop := func() { end(); endAllocator() }
	if err := chromedp.Do(context); err != nil {
		stop()
		return nil, nil, fmt.Errorf("%s: %w", program, err)
	}
	return &Browser{context, append(append([]string(nil), NoData...), want...)}, stop, nil
}

// View is how a page is shown.
type View struct {
	// Width is the window's, Height what a picture shows of the page; 0 is all of it.
	Width, Height int
}

// seen is what inspect.js returns.
type seen struct {
	Panels, Loading, Bottom int
	Signature               string
	Findings                []Finding
}

// Open opens a page, waits until it has loaded all of its panels, and returns what is wrong and a picture (PNG).
func (b *Browser) Open(url string, v View, deadline time.Duration) ([]Finding, []byte, error) {
	tab, end := chromedp.NewContext(b.context)
	defer end()
	tab, cancel := context.WithTimeout(tab, deadline)
	defer cancel()
	requests := &requests{open: map[network.RequestID]string{}}
	if err := chromedp.Listen(tab, requests.note); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", url, err)
	}
	const first = 900
	err := chromedp.Do(tab,
		chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: hook})
			return err
		}),
		chromedp.EmulateViewport(int64(v.Width), first),
		chromedp.Navigate(url))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", url, err)
	}
	s, err := b.settled(tab, requests, v.Width, first)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", url, err)
	}
	if s.Panels == 0 {
		s.Findings = append(s.Findings, Finding{What: "nothing", Text: url})
	}
	if v.Height > 0 {
		if err := chromedp.Do(tab, chromedp.EmulateViewport(int64(v.Width), int64(v.Height))); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", url, err)
		}
		if _, err := b.settled(tab, requests, v.Width, 0); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", url, err)
		}
	}
	png, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", url, err)
	}
	return append(requests.refused(), s.Findings...), png, nil
}

// calm is how many checks in a row must see the same.
const calm = 3

// settled checks until nothing is being loaded and nothing changes any more. As Grafana draws a panel when it comes
// into sight, the window of that height, unless it is 0, is made as tall as the page.
func (b *Browser) settled(tab context.Context, requests *requests, width, height int) (seen, error) {
	words, err := json.Marshal(b.noData)
	if err != nil {
		return seen{}, err
	}
	var last seen
	for same := 0; same < calm; {
		now, err := chromedp.Run(tab, chromedp.Evaluate[seen]("("+strings.TrimSuffix(strings.TrimSpace(script), ";")+")("+string(words)+")"))
		if err != nil {
			return seen{}, stuck(err, last, requests)
		}
		if pending := requests.pending(); now.Loading == 0 && len(pending) == 0 && now.Panels > 0 && now.Signature == last.Signature && now.Bottom == last.Bottom {
			same++
		} else {
			same = 0
		}
		last = now
		if height > 0 && now.Bottom > height {
			height, same = now.Bottom+16, 0
			if err := chromedp.Do(tab, chromedp.EmulateViewport(int64(width), int64(height))); err != nil {
				return seen{}, stuck(err, last, requests)
			}
		}
		select {
		case <-tab.Done():
			return seen{}, stuck(tab.Err(), last, requests)
		case <-time.After(200 * time.Millisecond):
		}
	}
	return last, nil
}

// stuck returns what a page was waiting for when it timed out.
func stuck(err error, last seen, requests *requests) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("not loaded in time: %d panels, %d of them loading, requests without an answer: %s", last.Panels, last.Loading, strings.Join(requests.pending(), ", "))
}

// requests are a page's own to its server.
type requests struct {
	mu   sync.Mutex
	open map[network.RequestID]string
	bad  []Finding
}

// note is called with each event of the page's.
func (r *requests) note(event any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		// Only these have an end; what the page made itself has none.
		switch e.Type {
		case network.ResourceTypeFetch, network.ResourceTypeXHR, network.ResourceTypeDocument, network.ResourceTypeScript:
			if strings.HasPrefix(e.Request.URL, "http") {
				r.open[e.RequestID] = e.Request.URL
			}
		}
	case *network.EventResponseReceived:
		if e.Response.Status >= 400 && strings.Contains(e.Response.URL, "/api/ds/query") {
			r.bad = append(r.bad, Finding{What: "query", Text: fmt.Sprintf("%s: %d", e.Response.URL, e.Response.Status)})
		}
	case *network.EventLoadingFinished:
		delete(r.open, e.RequestID)
	case *network.EventLoadingFailed:
		delete(r.open, e.RequestID)
	}
}

func (r *requests) pending() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, url := range r.open {
		all = append(all, url)
	}
	return all
}

func (r *requests) refused() []Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Finding(nil), r.bad...)
}
