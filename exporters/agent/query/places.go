package query

import (
	"fmt"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

// serverPlace is where files of a server are. It is found when the server is scanned; a
// scrape only compares it with the volumes that are known.
type serverPlace struct {
	// purpose is what the files are: data, wal, binlog or tablespace.
	purpose, device string
	// number is the file system's.
	number string
	// place is where the files are on it; its Path is empty if that is not known.
	place volume.Place
}

// placesOf finds the block devices that a server's files are on. On a file system without a device (tmpfs, overlay,
// network) there is none. It returns an error if there was no answer in time.
func placesOf(o collector.Options, calls *untrusted.Calls, s server.Server) ([]serverPlace, error) {
	files := []struct {
		purpose string
		server.Storage
	}{{"data", s.Data}, {"wal", s.WAL}, {"binlog", s.Binlog}}
	for _, t := range s.Tablespaces {
		files = append(files, struct {
			purpose string
			server.Storage
		}{"tablespace", t})
	}
	return untrusted.Call(calls, s.Owner(), fmt.Sprintf("devices of process %d", s.PID), func() ([]serverPlace, error) {
		devices := volume.NewDevices(o.ProcFS, o.SysFS)
		var places []serverPlace
		for _, f := range files {
			if f.Mount.Device == "" {
				continue
			}
			if device, err := devices.Of(f.Mount); err == nil {
				places = append(places, serverPlace{f.purpose, device, f.Mount.Device, f.Place})
			}
		}
		return places, nil
	})
}

// volumeOf returns the volume that holds the files: the one that their folder is in or, where that is not known, the
// only one on its file system.
func (p serverPlace) volumeOf(volumes []volume.Found) string {
	if p.place.Path != "" {
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
