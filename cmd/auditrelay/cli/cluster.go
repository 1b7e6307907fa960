package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/auditrelay/auditrelay/internal/app"
	"github.com/auditrelay/auditrelay/internal/control/console"
)

func newClusterStatus() *cobra.Command {
	return question("cluster status", &relayFlags{}, orJSON("print a JSON object"), listOf(clusterOf), printCluster)
}

// clusterOf asks for the section of /status.
func clusterOf(client *console.Client, ctx context.Context) (s app.ClusterStatus, err error) { //nolint:revive // as a method of the client
	sections, err := client.Status(ctx, console.AskStatus{Sections: []string{"cluster"}})
	if err == nil {
		err = readSection(sections["cluster"], &s)
	}
	return s, err
}

func printCluster(p *page, s app.ClusterStatus) {
	if s.This == "" {
		p.line("This relay keeps its journal on its own disk, and does all jobs. There is no other one.\n")
		p.grid(jobsTable(&s))
		return
	}
	relays := &grid{columns: []column{{title: "RELAY", flex: true}, {title: "HEARTBEAT", right: true}, {title: "JOBS", right: true}, {title: ""}}}
	for _, relay := range s.Relays {
		jobs, this := 0, ""
		for i := range s.Jobs {
			if s.Jobs[i].Holder == relay.Name {
				jobs++
			}
		}
		if relay.Name == s.This {
			this = "this one"
		}
		relays.add(nil, plainCells(relay.Name, ageText(s.Now, relay.Heartbeat), fmt.Sprint(jobs), this)...)
	}
	p.grid(relays)
	switch {
	case s.NextShards > 0:
		p.line("\nThe events are spread over %d shards, and are about to be spread over %d.", max(1, s.Shards), s.NextShards)
	case s.Shards > 1:
		p.line("\nThe events are spread over %d shards.", s.Shards)
	}
	p.line("")
	p.grid(jobsTable(&s))
}

func jobsTable(s *app.ClusterStatus) *grid {
	g := &grid{columns: []column{
		{title: "JOB"},
		{title: "DONE BY", flex: true, rank: 4},
		{title: "EPOCH", right: true, rank: 3},
		{title: "SINCE", right: true, rank: 2},
		{title: "POSITION", right: true, rank: 1},
		{title: "PENDING", right: true},
		{title: "OLDEST", right: true},
	}}
	for i := range s.Jobs {
		job := &s.Jobs[i]
		by, epoch := job.Holder, ""
		switch {
		case job.Epoch > 0 && by == "":
			by = "nobody"
		case s.This == "":
			by = "this relay"
		}
		if job.Epoch > 0 {
			epoch = fmt.Sprint(job.Epoch)
		}
		position, pending, oldest := "", "", ""
		if p := job.Position; p != nil {
			position, pending, oldest = fmt.Sprint(p.Acknowledged), fmt.Sprint(p.Pending), ageText(s.Now, p.Oldest)
			if p.Unknown != "" {
				position, pending = "unknown", "unknown"
			}
		}
		g.add(nil, plainCells(job.Name, by, epoch, ageText(s.Now, job.Since), position, pending, oldest)...)
	}
	return g
}
