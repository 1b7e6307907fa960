// Package workspacesim simulates the Workspace Management API, and the event
// log that the service streams to where the API tells it to.
//
// [Simulator.Handler] serves the operations of the API's document, strictly;
// what the document leaves open is decided in CHOICES.md beside this file.
// [Simulator.Start] lets every environment generate events and push them to
// the destination that operation 14 set. [Simulator.Admin] is the simulator's
// own address, for what a dashboard, a provider's outage or a test would do.
//
// Everything that is generated follows from [Options.Seed], but for times.
package workspacesim
