package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/auditrelay/auditrelay/internal/control/admin"
	"github.com/auditrelay/auditrelay/internal/journal"
	"github.com/auditrelay/auditrelay/internal/journal/move"
	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/store/lease"
	"github.com/auditrelay/auditrelay/relay"
)

// A relay's work consists of jobs: one for each sink, and control. On a disk it has all of them
// from its start. Of several relays on one cluster each takes pushes, and each job is done by the
// one that has the job's turn: sinks are spread evenly, and control stays where it is. What a job
// does is the same code in both. How it begins is not: on a disk a sink that cannot be opened
// refuses the start, a reload may add sinks, and the sinks stop after the pushes, while in a
// cluster a failed job is begun again, and goes to another relay before anything else stops.

// The names of the jobs in a cluster.
const (
	sinkJob    = "sink/" // followed by the sink's name
	controlJob = "control"
)

// sinkJobOf is the job that delivers the events of one log to a sink.
func sinkJobOf(sink string, shard int) string {
	if shard == 0 {
		return sinkJob + sink
	}
	return fmt.Sprintf("%s%s/%d", sinkJob, sink, shard)
}

// memberFile has the name under which the process takes part in the cluster. The next process
// on this data directory, which has its lock, knows by it that the one before has ended.
const memberFile = "member"

// errTurnLost ends a relay that was thought dead while it had control.
var errTurnLost = errors.New("another relay of this cluster has taken over, since the heartbeats of this one did not arrive; restart it, and it takes pushes again")

// startJobs starts the jobs: at once on a disk, and in a cluster as soon as this relay has the
// turn of each.
func (r *process) startJobs(ctx context.Context) error {
	r.deliveries = relay.NewMetrics(r.reg)
	for _, name := range r.sinkNames() {
		r.deliveries.Begin(name)
	}
	r.control = newControl(r)
	r.admin.AddCheck(admin.Check{Name: "sinks", Probe: r.sinksRemark})
	if r.inCluster() {
		r.couriers.replace(r.cfg().Sinks, func(string) bool { return false })
		if err := r.joinCluster(ctx); err != nil {
			return err
		}
		r.stack.push("control", r.control.stop)
		return nil
	}
	if err := r.startSinks(ctx); err != nil {
		return err
	}
	r.stack.push("control", r.control.stop)
	return r.control.begin(ctx, new(lease.Turn))
}

// calmAfter leaves the disk, which may be slow while nothing is in memory, to the first pushes.
const calmAfter = time.Second

// startActing ends the start: pushes are taken, and the provider may be told to send them.
func (r *process) startActing(ctx context.Context) error {
	r.stack.push("acting control", r.control.stopActing)
	r.admin.Running()
	close(r.up)
	if r.reload.Source.Again != nil {
		r.followFiles()
	}
	time.AfterFunc(calmAfter, func() { close(r.calm) })
	if r.inCluster() { // it acts as soon as this relay has the turn
		// What others can do goes to them before anything else is stopped here, which may take a while.
		r.stack.push("sinks in the cluster", func(context.Context) error { r.leave(); return nil })
		return nil
	}
	return r.control.act(ctx)
}

// joinCluster takes part in the work of the cluster's relays.
func (r *process) joinCluster(ctx context.Context) error {
	path := filepath.Join(r.cfg().DataDir, NotesDir, memberFile)
	was, err := durable.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the relay's name in the cluster: %w", err)
	}
	if err := r.startElsewhere(ctx); err != nil {
		return err
	}
	host, _ := os.Hostname() // without it, the name is only the random part
	jobs := map[string]lease.Work{controlJob: r.work.noted(controlJob, r.control.do)}
	for _, name := range r.sinkNames() {
		for shard := range r.journal.Logs() {
			job := sinkJobOf(name, shard)
			jobs[job] = r.work.noted(job, func(ctx context.Context, turn *lease.Turn) error { return r.doSink(ctx, name, shard, turn) })
		}
	}
	options := lease.Options{
		Table: r.store.Table(), Name: host, Was: string(was), Logger: r.log, Jobs: jobs, Sticky: []string{controlJob}, Says: r.journal.Says,
		// It goes on while the cluster elects a leader: then nobody else can take over.
		Timing: lease.Timing{Beat: lease.DefaultTiming.Beat, Dead: lease.DefaultTiming.Dead},
		// A crash before leaves the name of an earlier process, which has ended too. A relay that was
		// declared dead, since the journal was moved while it was frozen, ends here.
		Joining: func(self string) error {
			isMoved := func(err error) bool { return errors.Is(err, move.ErrElsewhere) }
			err := retry.Insist(ctx, r.log, "asking whether the journal was moved", isMoved, func() error { return move.Check(ctx, r.store) })
			if err != nil {
				return err
			}
			r.member.Store(&self)
			return durable.WriteFile(path, []byte(self))
		},
	}
	ctx, r.leave = context.WithCancel(context.WithoutCancel(ctx))
	r.stack.push("jobs in the cluster", background(func(stopping context.Context) {
		defer context.AfterFunc(stopping, r.leave)()
		if err := lease.Run(ctx, options); ctx.Err() == nil {
			r.fail(err)
		}
	}))
	r.admin.AddCheck(admin.Check{Name: "cluster", Probe: func(context.Context) (string, error) { return r.work.remark(), nil }})
	r.reg.MustRegister(clusterMetrics{r})
	return nil
}

// work knows which jobs are under way in this process.
type work struct {
	names sync.Map // the values mean nothing
}

// noted is work that is known while it is under way.
func (w *work) noted(name string, do lease.Work) lease.Work {
	return func(ctx context.Context, turn *lease.Turn) error {
		w.names.Store(name, nil)
		defer w.names.Delete(name)
		return do(ctx, turn)
	}
}

// list is sorted.
func (w *work) list() []string {
	all := []string{}
	for name := range w.names.Range {
		all = append(all, name.(string))
	}
	slices.Sort(all)
	return all
}

// remark names what this relay does besides taking pushes.
func (w *work) remark() string {
	jobs := w.list()
	if len(jobs) == 0 {
		return "this relay takes pushes; others of the cluster do the other jobs"
	}
	return "this relay takes pushes, and does " + strings.Join(jobs, ", ")
}

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
