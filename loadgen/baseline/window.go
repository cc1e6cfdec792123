package baseline

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Window is a time of each day, or of one day of each week, at which a storage class is known to
// be slow, as by a backup.
type Window struct {
	// StorageClass is whose; empty: all that are measured.
	StorageClass string
	// Name is what happens then.
	Name string
	// Weekday is the day of the week on which it begins, -1 for every day.
	Weekday time.Weekday
	// From and To are the minutes of the day, in UTC, it begins and ends. It goes on over midnight
	// if To is not above From.
	From, To int
	// Ratio is how many times the pinned p95 is no surprise then.
	Ratio float64
}

const everyDay time.Weekday = -1

var (
	windowForm = regexp.MustCompile(`^(?:([^= ]+)=)?(\S.*?) (?:(Sun|Mon|Tue|Wed|Thu|Fri|Sat) )?([0-2]\d):([0-5]\d)-([0-2]\d):([0-5]\d) UTC$`)
	weekdays   = []string{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"}
)

// ParseWindow reads a window as "nightly backup 02:00-02:30 UTC", of one class as
// "longhorn-r3=trim Mon 00:00-00:30 UTC".
func ParseWindow(text string, ratio float64) (Window, error) {
	bad := func(why string) (Window, error) {
		return Window{}, fmt.Errorf("expected window %q: %s", text, why)
	}
	m := windowForm.FindStringSubmatch(text)
	if m == nil {
		return bad(`must be "[CLASS=]NAME [Mon] HH:MM-HH:MM UTC"`)
	}
	if !(ratio > 1) {
		return bad(fmt.Sprintf("%g times the pinned p95 is no slowness; must be above 1", ratio))
	}
	minute := func(hours, minutes string) int {
		h, _ := strconv.Atoi(hours)
		m, _ := strconv.Atoi(minutes)
		return 60*h + m
	}
	w := Window{StorageClass: m[1], Name: m[2], Weekday: everyDay, From: minute(m[4], m[5]), To: minute(m[6], m[7]), Ratio: ratio}
	if m[3] != "" {
		w.Weekday = time.Weekday(slices.Index(weekdays, m[3]))
	}
	switch {
	case w.From >= 24*60 || w.To > 24*60:
		return bad("no such time of day")
	case w.From == w.To:
		return bad("it ends when it begins")
	}
	return w, nil
}

// Contains reports whether the window is open at t.
func (w Window) Contains(t time.Time) bool {
	t = t.UTC()
	m := 60*t.Hour() + t.Minute()
	day := func(d time.Weekday) bool { return w.Weekday == everyDay || d == w.Weekday }
	if w.From < w.To {
		return m >= w.From && m < w.To && day(t.Weekday())
	}
	return m >= w.From && day(t.Weekday()) || m < w.To && day((t.Weekday()+6)%7)
}

// Expr is an expression in PromQL that has a value, the ratio, while the window is open.
func (w Window) Expr() string {
	const now = "60 * hour() + minute()"
	on := func(d time.Weekday) string {
		if w.Weekday == everyDay {
			return ""
		}
		return fmt.Sprintf(" and on () day_of_week() == %d", d)
	}
	ratio := strconv.FormatFloat(w.Ratio, 'g', 6, 64)
	if w.From < w.To {
		return fmt.Sprintf("vector(%s) and on () %s >= %d and on () %s < %d%s", ratio, now, w.From, now, w.To, on(w.Weekday))
	}
	return fmt.Sprintf("vector(%s) and on () (%s >= %d%s or %s < %d%s)", ratio, now, w.From, on(w.Weekday), now, w.To, on((w.Weekday+1)%7))
}

// Times are the window's times as they are read.
func (w Window) Times() string {
	times := fmt.Sprintf("%02d:%02d-%02d:%02d UTC", w.From/60, w.From%60, w.To/60, w.To%60)
	if w.Weekday != everyDay {
		return weekdays[w.Weekday] + " " + times
	}
	return times
}

// String is the window as it is read.
func (w Window) String() string {
	if w.StorageClass != "" {
		return w.StorageClass + "=" + w.Name + " " + w.Times()
	}
	return w.Name + " " + w.Times()
}

// share is the share of the time from one to another in which one of the windows is open.
func share(windows []Window, from, to time.Time) float64 {
	if len(windows) == 0 {
		return 0
	}
	open, all := 0, 0
	for t := from; t.Before(to); t = t.Add(time.Second) {
		all++
		if slices.ContainsFunc(windows, func(w Window) bool { return w.Contains(t) }) {
			open++
		}
	}
	return float64(open) / float64(max(all, 1))
}
