package app

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/store/lease"
)

// ClusterStatus is the section "cluster" of /status.
type ClusterStatus struct {
	// This is the relay that answers; empty on a disk, where there is no other one.
	This string `json:"this,omitempty"`
	// Doing are the jobs that it does right now.
	Doing []string `json:"doing,omitempty"`
	// Shards is over how many streams the events are spread, as far as this relay knows, and
	// NextShards over how many they are about to be; both are 0 on a disk.
	Shards     int `json:"shards,omitempty"`
	NextShards int `json:"next_shards,omitempty"`
	// Now is its clock. Heartbeats and epochs have the times of their writers' clocks.
	Now    time.Time     `json:"now"`
	Relays []lease.Relay `json:"relays"`
	Jobs   []JobStatus   `json:"jobs"`
}

// JobStatus is who does a job, and for a sink's job how far the sink is.
type JobStatus struct {
	lease.Job
	Position *journal.SinkPosition `json:"position,omitempty"`
}

// positions are those of all sinks in each log; nil where the journal is not open yet.
type positions func(context.Context) ([][]journal.SinkPosition, error)

// showCluster has /status say who does which job, and how far each is.
func (r *process) showCluster(sinks positions) {
	r.admin.AddStatus("cluster", func(ctx context.Context) (any, error) { return r.clusterStatus(ctx, sinks) })
}

func (r *process) clusterStatus(ctx context.Context, sinks positions) (s ClusterStatus, err error) {
	var all [][]journal.SinkPosition
	var unread error
	var asking sync.WaitGroup // the store may be far away
	if sinks != nil {
		asking.Go(func() { all, unread = sinks(ctx) })
	}
	state, err := lease.State(ctx, r.store.Table())
	asking.Wait()
	if err != nil {
		return s, err
	}
	s = ClusterStatus{Doing: r.work.list(), Now: time.Now(), Relays: state.Relays, Jobs: make([]JobStatus, len(state.Jobs))}
	if name := r.member.Load(); name != nil {
		s.This = *name
		s.Shards, s.NextShards = r.journal.Spread()
	}
	for i, job := range state.Jobs {
		s.Jobs[i].Job = job
	}
	for shard := range all {
		for i := range all[shard] {
			s.jobOf(sinkJobOf(all[shard][i].Sink, shard)).Position = &all[shard][i]
		}
	}
	slices.SortFunc(s.Jobs, func(a, b JobStatus) int { return strings.Compare(a.Name, b.Name) })
	return s, unread
}

// jobOf is a job that delivers to a sink. Where it has no epoch, one without a holder is added.
func (s *ClusterStatus) jobOf(name string) *JobStatus {
	i := slices.IndexFunc(s.Jobs, func(j JobStatus) bool { return j.Name == name })
	if i < 0 {
		i, s.Jobs = len(s.Jobs), append(s.Jobs, JobStatus{Job: lease.Job{Name: name}})
	}
	return &s.Jobs[i]
}

// clusterMetrics reads the table when it is scraped.
type clusterMetrics struct{ *process }

var (
	relaysDesc = prometheus.NewDesc("auditrelay_cluster_relays", "Relays that take part in the cluster, and that nobody has declared dead.", nil, nil)
	heldDesc   = prometheus.NewDesc("auditrelay_cluster_job_held", "1 if this relay does the job of the cluster, 0 if another one or none does.", []string{"job"}, nil)
	epochDesc  = prometheus.NewDesc("auditrelay_cluster_job_epoch", "How many holders the job of the cluster has had.", []string{"job"}, nil)
)

// Describe implements [prometheus.Collector].
func (clusterMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- relaysDesc
	to <- heldDesc
	to <- epochDesc
}

// clusterAnswers bounds the question at a scrape. Without an answer the metrics are left out.
const clusterAnswers = 3 * time.Second

// Collect implements [prometheus.Collector].
func (m clusterMetrics) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), clusterAnswers)
	defer cancel()
	s, err := m.clusterStatus(ctx, nil)
	if err != nil {
		return
	}
	to <- prometheus.MustNewConstMetric(relaysDesc, prometheus.GaugeValue, float64(len(s.Relays)))
	for _, job := range s.Jobs {
		held := job.Holder != "" && job.Holder == s.This
		to <- prometheus.MustNewConstMetric(heldDesc, prometheus.GaugeValue, oneIf(held), job.Name)
		to <- prometheus.MustNewConstMetric(epochDesc, prometheus.GaugeValue, float64(job.Epoch), job.Name)
	}
}
