package app

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// diskFree is the room that the data directory's disk has for the relay, whoever fills it; NaN
// where it cannot be asked.
func diskFree(dir string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "auditrelay_disk_free_bytes", Help: "Free room on the data directory's disk.",
	}, func() float64 {
		var disk unix.Statfs_t
		if unix.Statfs(dir, &disk) != nil {
			return math.NaN()
		}
		return float64(disk.Bavail) * float64(disk.Bsize)
	})
}
