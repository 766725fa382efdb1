package guest

import (
	"context"
	"slices"

	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/rules/machine"
)

// Job is a disk copy by QEMU, which lists it also after its end.
type Job struct {
	ID, Status, Error string
	Done, Total       int64 // bytes
}

// Concluded is the status of an ended job.
const Concluded = "concluded"

// maxJobs is far more than one for each disk.
const maxJobs = 256

type jobInfo struct {
	ID     string  `json:"id"`
	Status string  `json:"status"`
	Error  string  `json:"error"`
	Done   float64 `json:"current-progress"`
	Total  float64 `json:"total-progress"`
}

func listJobs(list *[]jobInfo) qmp.Command {
	return qmp.Command{Name: "query-jobs", Result: list}
}

func copiesOf(list []jobInfo) []Job {
	var jobs []Job
	for _, j := range list {
		if machine.IsMirrorJob(j.ID) && len(jobs) < maxJobs {
			jobs = append(jobs, Job{
				ID: j.ID, Status: j.Status[:min(len(j.Status), maxStatus)], Error: Truncate(j.Error),
				Done: int64(clamp(j.Done)), Total: int64(clamp(j.Total)),
			})
		}
	}
	return jobs
}

// QueryJobs queries the disk copies.
func QueryJobs(ctx context.Context, monitor *qmp.Client) ([]Job, error) {
	var list []jobInfo
	if err := monitor.ExecuteAll(ctx, listJobs(&list)); err != nil {
		return nil, err
	}
	return copiesOf(list), nil
}

// hasActiveJob reports whether QEMU will change a job without another command.
func hasActiveJob(jobs []Job) bool {
	return slices.ContainsFunc(jobs, func(j Job) bool { return j.Status != Concluded })
}
