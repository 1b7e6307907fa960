package streamserver

import (
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/record"
)

// SinkConsumers begins the names of the consumers with a sink's position.
const SinkConsumers = "sink_"

// Layout names the content of the journal's streams of a prefix.
func Layout(prefix string) datadir.Layout {
	return datadir.Layout{
		Events: prefix + "_EVENTS", DeadLetters: prefix + "_DEADLETTERS", Quarantine: prefix + "_QUARANTINE",
		Sinks: SinkConsumers, Count: record.Count, Check: record.Check, Later: record.CheckVersion, AdviceLater: AdviceLater,
	}
}

// streamNames are the names of all the relay's streams with a prefix. Each is asked for
// by name, as a list leaves out streams without a leader.
func streamNames(prefix string) []string {
	journal := Layout(prefix)
	return []string{
		"KV_" + prefix + "_credentials",
		journal.Events, journal.DeadLetters, journal.Quarantine, prefix + "_SINKS", prefix + "_AUDIT", prefix + "_CHECKPOINTS",
	}
}

// OpenOffline opens the journal of a data directory without a running relay. prefix is
// the configuration's stream_prefix.
func OpenOffline(dataDir, prefix string) (*datadir.Offline, error) {
	return datadir.OpenOffline(dataDir, Layout(prefix))
}
