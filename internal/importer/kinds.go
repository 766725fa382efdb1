package importer

import (
	"context"
	"fmt"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/importer/clone"
	"drydock.dev/drydock/internal/importer/fill"
	"drydock.dev/drydock/internal/importer/job"
	"drydock.dev/drydock/internal/importer/registry"
	"drydock.dev/drydock/internal/importer/upload"
	"drydock.dev/drydock/internal/importer/web"
)

var kinds = map[transfer.Kind]func(ctx context.Context, j *job.Job) (transfer.Result, error){
	transfer.KindHTTP: func(ctx context.Context, j *job.Job) (transfer.Result, error) {
		source, err := web.New(j)
		if err != nil {
			return transfer.Result{}, err
		}
		return fill.Fill(ctx, j, source)
	},
	transfer.KindRegistry: func(ctx context.Context, j *job.Job) (transfer.Result, error) {
		source, err := registry.New(j)
		if err != nil {
			return transfer.Result{}, err
		}
		return fill.Fill(ctx, j, source)
	},
	transfer.KindUpload:      upload.Run,
	transfer.KindCloneSource: clone.Send,
	transfer.KindBlank:       func(_ context.Context, j *job.Job) (transfer.Result, error) { return fill.Blank(j) },
}

func do(ctx context.Context, j *job.Job) (transfer.Result, error) {
	work, known := kinds[j.Task.Kind]
	if !known {
		return transfer.Result{}, fmt.Errorf("this worker does not know the task %q", j.Task.Kind)
	}
	return work(ctx, j)
}
