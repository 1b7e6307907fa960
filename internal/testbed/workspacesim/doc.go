// Package workspacesim simulates the Workspace Management API, and the event log streamed
// by the service.
//
// [Simulator.Handler] serves the operations of the API's document, strictly. CHOICES.md
// in this folder decides what the document leaves open. [Simulator.Start] lets every
// environment generate events and push them to its destination, set by operation 14.
// [Simulator.Admin] is the simulator's own address: it acts the dashboard, a provider's
// outage or a test.
//
// All generated data follows from [Options.Seed], except for times.
package workspacesim
