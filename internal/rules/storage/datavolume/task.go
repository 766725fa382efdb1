package datavolume

import (
	"fmt"
	"slices"
	"strings"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/certs/workertls"
	"drydock.dev/drydock/internal/contracts/transfer"
)

func (d *decision) newWorker() *Worker {
	dv := d.DataVolume
	w := &Worker{
		Name: WorkerName(dv), Namespace: dv.Namespace, Component: ComponentImporter,
		Claim: d.Claim, Task: TaskOf(d.Observed), RestartsBefore: d.plan.Status.RestartCount,
	}
	if w.Task.Kind == transfer.KindUpload {
		certificate := UploadCertificate(dv)
		w.Component, w.Certificate = ComponentUpload, &certificate
	}
	// The replacement of a lost pod counts as a restart.
	if d.stage() >= stageScheduled {
		w.RestartsBefore++
	}
	return w
}

func (d *decision) newSource() *Worker {
	claim := d.Source.Claim
	if d.DataVolume.Spec.Source.Snapshot != nil {
		claim = d.Restored
	}
	certificate := SourceCertificate(d.DataVolume, claim.Namespace)
	return &Worker{
		Name: SourcePodName(d.DataVolume), Namespace: claim.Namespace, Component: ComponentCloner,
		Claim: claim, Certificate: &certificate,
		Task: transfer.Task{
			Kind: transfer.KindCloneSource, Block: IsBlock(claim),
			URL: fmt.Sprintf("https://%s:%d%s", workertls.ServerName(d.DataVolume.Name, d.DataVolume.Namespace),
				transfer.UploadPort, transfer.ClonePath),
		},
	}
}

func preallocate(o Observed) bool {
	if asked := o.DataVolume.Spec.Preallocation; asked != nil {
		return *asked
	}
	return o.Config.Preallocate
}

// TaskOf returns the task of the DataVolume's worker.
func TaskOf(o Observed) transfer.Task {
	dv := o.DataVolume
	task := transfer.Task{
		Block: IsBlock(o.Claim), Size: DiskSize(o),
		Archive:     contentType(dv) == cdiv1.DataVolumeArchive,
		Checksum:    Checksum(dv),
		Preallocate: preallocate(o),
	}
	task.DeniedNetworks, task.AllowedNetworks = o.Config.DeniedNetworks, o.Config.AllowedNetworks
	switch source := dv.Spec.Source; {
	case source.HTTP != nil:
		task.Kind, task.URL = transfer.KindHTTP, source.HTTP.URL
		task.Credentials, task.CA = source.HTTP.SecretRef != "", source.HTTP.CertConfigMap != ""
		task.Insecure = source.HTTP.InsecureSkipVerify != nil && *source.HTTP.InsecureSkipVerify
		task.Headers, task.SecretHeaders = source.HTTP.ExtraHeaders, len(source.HTTP.SecretExtraHeaders) > 0
	case source.Registry != nil:
		task.Kind = transfer.KindRegistry
		task.CA = value(source.Registry.CertConfigMap) != ""
		task.Credentials = value(source.Registry.SecretRef) != ""
		task.URL = value(source.Registry.URL)
		if NodePull(source.Registry) {
			// The kubelet mounts the image.
			task.URL = "file://" + transfer.SourceDir
		} else {
			host, _, _ := strings.Cut(strings.TrimPrefix(task.URL, cdiv1.RegistrySchemeDocker+"://"), "/")
			task.Insecure = slices.Contains(o.Config.InsecureRegistries, host)
		}
	case source.Blank != nil:
		task.Kind = transfer.KindBlank
	default:
		task.Kind = transfer.KindUpload
	}
	return task
}

// Checksum returns the expected checksum, "" for none. The annotation is older than the field.
func Checksum(dv *cdiv1.DataVolume) string {
	if source := dv.Spec.Source; source != nil && source.HTTP != nil && source.HTTP.Checksum != "" {
		return source.HTTP.Checksum
	}
	return dv.Annotations[AnnChecksum]
}

// NodePull reports whether the node's container runtime pulls the image.
func NodePull(source *cdiv1.DataVolumeSourceRegistry) bool {
	return source != nil && source.PullMethod != nil && *source.PullMethod == cdiv1.RegistryPullNode
}

// NodeImage returns the image that the node pulls.
func NodeImage(source *cdiv1.DataVolumeSourceRegistry) string {
	return strings.TrimPrefix(value(source.URL), cdiv1.RegistrySchemeDocker+"://")
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
