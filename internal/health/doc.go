// Package health judges whether each environment's event log really flows. It holds the
// API's word against the arrivals.
//
// [Judge] is pure: it gives a state with its reason, its beginning and an action. A
// [Keeper] judges every environment each second. It waits until a state has held for a
// moment, and enters transitions into the audit trail. The trail's newest entry is the
// state after a restart, so a crash at any line enters a transition once.
//
// A time without good pushes is a [Gap]. At its end, the keeper estimates the lost events
// by the environment's rhythm (internal/health/rhythm), less the late ones. A file keeps the
// rhythms and the gaps: see [FileName].
//
// The keeper only reads the counts of internal/ingest/received. It never slows a push.
package health
