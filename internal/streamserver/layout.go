package streamserver

import (
	"github.com/auditrelay/auditrelay/internal/datadir"
	"github.com/auditrelay/auditrelay/internal/record"
)

// SinkConsumers begins the names of the consumers that keep a sink's position.
const SinkConsumers = "sink_"

// Layout says what the journal's streams of a prefix hold.
func Layout(prefix string) datadir.Layout {
	return datadir.Layout{
		Events: prefix + "_EVENTS", DeadLetters: prefix + "_DEADLETTERS", Quarantine: prefix + "_QUARANTINE",
		Sinks: SinkConsumers, Count: record.Count, Check: record.Check, Later: record.CheckVersion, AdviceLater: AdviceLater,
	}
}

// streamNames are the names of all streams that the relay keeps with a prefix. Each is
// asked for by name, as a list leaves out streams without a leader.
func streamNames(prefix string) []string {
	journal := Layout(prefix)
	return []string{
		"KV_" + prefix + "_credentials",
		journal.Events, journal.DeadLetters, journal.Quarantine, prefix + "_SINKS", prefix + "_AUDIT", prefix + "_CHECKPOINTS",
	}
}

// OpenOffline opens the journal of a data directory on which no relay runs. prefix is
// the configuration's stream_prefix.
func OpenOffline(dataDir, prefix string) (*datadir.Offline, error) {
	return datadir.OpenOffline(dataDir, Layout(prefix))
}
