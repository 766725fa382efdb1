package fill

import (
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

// Finished does what an earlier worker left to do when it had made the disk whole, and
// reports whether there was one. A worker whose source does not come by itself, an
// upload, asks before it waits for it once more.
func Finished(j *job.Job) (transfer.Result, bool, error) {
	f := &importRun{job: j, journal: journalStoreOf(j)}
	was := f.journal.read(j.Task)
	if was == nil || !was.Whole {
		return transfer.Result{}, false, nil
	}
	err := f.finishAgain(was)
	return f.result, err == nil, spaceFault(err)
}
