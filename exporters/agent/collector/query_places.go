package collector

import (
	"fmt"

	"github.com/plumbline/plumbline/exporters/agent/foreign"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

// serverPlace is where a server's data or log is. It is found when the server is looked at; a
// scrape only compares it with the volumes that are known.
type serverPlace struct {
	purpose, device string
	// number is the file system's.
	number string
	// folder tells that it is the data directory's file system; place is then where that is.
	folder bool
	place  volume.Place
}

// placesOf finds the block devices that a server's files are on. On a file system without a device (tmpfs, overlay, network)
// there is none. The error says that there was no answer in time.
func placesOf(o Options, calls *foreign.Calls, s server.Server) ([]serverPlace, error) {
	if s.Data == "" && s.WAL == "" {
		return nil, nil
	}
	return foreign.AskFor(calls, s.Owner(), fmt.Sprintf("devices of process %d", s.PID), func() ([]serverPlace, error) {
		devices := volume.NewDevices(o.ProcFS, o.SysFS)
		var places []serverPlace
		for _, f := range []struct{ purpose, number, source string }{
			{"data", s.Data, s.DataSource}, {"wal", s.WAL, s.WALSource},
		} {
			if f.number == "" {
				continue
			}
			device, err := devices.Of(volume.Mount{Device: f.number, Source: f.source})
			if err != nil {
				continue
			}
			p := serverPlace{purpose: f.purpose, device: device, number: f.number}
			if p.folder = f.number == s.Data; p.folder {
				// Unknown if it cannot be read: the server may just have ended.
				p.place, _ = volume.PlaceOf(o.ProcFS, s.PID, s.DataPath)
			}
			places = append(places, p)
		}
		return places, nil
	})
}

// volumeOf returns the volume that holds the files: the one that their folder is in, or, for a
// log elsewhere, the only one on its file system.
func (p serverPlace) volumeOf(volumes []volume.Found) string {
	if p.folder {
		found, _ := volume.Holding(volumes, p.place)
		return found.Volume
	}
	name := ""
	for _, v := range volumes {
		if v.Place.Device == p.number {
			if name != "" {
				return ""
			}
			name = v.Volume
		}
	}
	return name
}
