package target

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/job"
)

const contentSize = 1 << 30

func write(t *testing.T, name string, at int64) {
	t.Helper()
	file, err := os.Create(name)
	if err == nil {
		err = file.Truncate(contentSize)
	}
	if err == nil && at >= 0 {
		_, err = file.WriteAt([]byte{1}, at)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestContentIsReplacedOnlyWhenThatIsAskedFor(t *testing.T) {
	block, file, archive := transfer.Task{Block: true, KeepContent: true}, transfer.Task{KeepContent: true}, transfer.Task{Archive: true, KeepContent: true}
	device := func(at int64) func(*testing.T, *job.Job) {
		return func(t *testing.T, j *job.Job) { write(t, j.Places.Device, at) }
	}
	disk := func(name string, at int64) func(*testing.T, *job.Job) {
		return func(t *testing.T, j *job.Job) { write(t, filepath.Join(j.Places.Dir, name), at) }
	}
	for name, test := range map[string]struct {
		task  transfer.Task
		given func(*testing.T, *job.Job)
		says  string
	}{
		"an empty device":                        {block, device(-1), ""},
		"a device with a partition table":        {block, device(510), "the claim has content"},
		"one whose end is written":               {block, device(contentSize - 1), "the claim has content"},
		"one that is written far from its ends":  {block, device(headSize + 3*pieceEvery), "the claim has content"},
		"one that may be written":                {transfer.Task{Block: true}, device(510), ""},
		"no disk":                                {file, func(*testing.T, *job.Job) {}, ""},
		"an empty disk":                          {file, disk("disk.img", -1), ""},
		"a disk":                                 {file, disk("disk.img", 510), "the claim has a disk (disk.img)"},
		"a disk that is written in its middle":   {file, disk("disk.img", contentSize/2+12345), "the claim has a disk (disk.img)"},
		"another file":                           {file, disk("notes", 0), ""},
		"what an upload has left that was cut":   {file, disk(partName, 0), ""},
		"a folder for an archive":                {archive, disk("lost+found", -1), ""},
		"a folder for an archive that has files": {archive, disk("notes", 0), "the claim has files (notes)"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, test.task)
			if err := os.MkdirAll(j.Places.Work, 0o755); err != nil {
				t.Fatal(err)
			}
			test.given(t, j)
			err := RefuseContent(j)
			if test.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				// From here on the content is the worker's own.
				write(t, j.Places.Device, 0)
				write(t, filepath.Join(j.Places.Dir, "disk.img"), 0)
				if err := RefuseContent(j); err != nil {
					t.Errorf("after its first look it says %v", err)
				}
				return
			}
			if fault := job.FaultOf(err); err == nil || fault.Reason != transfer.ReasonHasContent || !strings.HasPrefix(fault.Message, test.says) {
				t.Errorf("it says %v, want %q", err, test.says)
			}
		})
	}
}
