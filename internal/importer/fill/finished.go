package fill

import (
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

// Finished completes the last steps of an earlier worker whose disk was complete, and reports whether there was one.
func Finished(j *job.Job) (transfer.Result, bool, error) {
	f := &importRun{job: j, journal: journalStoreOf(j)}
	was := f.journal.read(j.Task)
	if was == nil || !was.Whole {
		return transfer.Result{}, false, nil
	}
	err := f.finishAgain(was)
	return f.result, err == nil, spaceFault(err)
}
