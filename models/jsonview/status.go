package jsonview

import "github.com/locket-service/locket/models"

// ServiceStatus is the status of the service.
type ServiceStatus struct {
	Problems []string `json:"problems" doc:"The problems, a sentence each."`
	Servers  []Server `json:"servers" doc:"The servers that share the database; the answering server comes first."`
	Database Database `json:"database" doc:"The database that has the claims."`
	Clock    Clock    `json:"clock" doc:"The state of the clocks."`
	Counts   *Counts  `json:"counts" doc:"The numbers of claims and sessions, counted every 15 seconds; null before the first count."`
}

// Counts says how much there is.
type Counts struct {
	Held     uint64 `json:"held" doc:"How many claims hold a resource."`
	Waiting  uint64 `json:"waiting" doc:"How many claims wait."`
	Sessions uint64 `json:"sessions" doc:"How many sessions there are, attached or not."`
}

// Server is a server.
type Server struct {
	Name    string    `json:"name" doc:"Chosen when the server started. The member server of its sessions is this name, a hyphen and a number."`
	Host    string    `json:"host" doc:"The name of the machine that it runs on."`
	Version string    `json:"version" doc:"Its version."`
	Started Timestamp `json:"started" doc:"When the server started."`
	Silent  Seconds   `json:"silent" doc:"Seconds since the database last heard from it; 0 for the server that answers."`
}

// Database describes the database.
type Database struct {
	Engine  string `json:"engine" doc:"embedded or mysql."`
	Version string `json:"version" doc:"The version that the database reports."`
}

// Clock is the state of the clocks.
type Clock struct {
	Time          Timestamp `json:"time" doc:"The database's time."`
	Ahead         Seconds   `json:"ahead" doc:"By how many seconds the server's own clock is ahead of the database's; negative if it is behind."`
	Skew          Seconds   `json:"skew" doc:"For how many seconds longer than their TTL leases are kept, because the clocks of a cluster differ."`
	LeaseTimeRuns bool      `json:"lease_time_runs" doc:"Whether lease time runs. While it does not, no lease comes nearer to its end."`
	Reason        *string   `json:"reason" doc:"Why lease time stands still; null while it runs."`
	Outage        Seconds   `json:"outage" doc:"The sum of all time that counted against no lease, in seconds."`
	Idle          Seconds   `json:"idle" doc:"For how many seconds lease time has stood still since the answering server started, because there were no leases."`
	Unavailable   Seconds   `json:"unavailable" doc:"The same, because it could not commit."`
}

// OfStatus returns the view of a status.
func OfStatus(s *models.ServiceStatus) ServiceStatus {
	v := ServiceStatus{
		Problems: append([]string{}, s.GetProblems()...), Servers: make([]Server, len(s.GetServers())),
		Database: Database{Engine: s.GetDatabase().GetEngine(), Version: s.GetDatabase().GetVersion()},
		Clock: Clock{
			Time: timestampOf(s.GetClock().GetTime()), Ahead: Seconds(s.GetClock().GetAhead()), Skew: Seconds(s.GetClock().GetSkew()),
			LeaseTimeRuns: s.GetClock().GetLeaseTimeRuns(), Reason: unlessZero(s.GetClock().GetReason()), Outage: Seconds(s.GetClock().GetOutage()),
			Idle: Seconds(s.GetClock().GetIdle()), Unavailable: Seconds(s.GetClock().GetUnavailable()),
		},
	}
	for i, server := range s.GetServers() {
		v.Servers[i] = Server{
			Name: server.GetName(), Host: server.GetHost(), Version: server.GetVersion(),
			Started: timestampOf(server.GetStarted()), Silent: Seconds(server.GetSilent()),
		}
	}
	if n := s.GetCounts(); n != nil {
		v.Counts = &Counts{n.GetHeld(), n.GetWaiting(), n.GetSessions()}
	}
	return v
}
