package imageupload

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"kubevirt.io/api/instancetype"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/virtctl/client"
)

// look is the interval at which the volume's state is read. The state is in up to two objects, of which CDI's
// versions set one or the other; reading both is simpler than watching both, and half a second does not matter.
const look = 500 * time.Millisecond

type state struct {
	claim *corev1.PersistentVolumeClaim
	dv    *cdiv1.DataVolume
}

// Missing objects are nil.
func (u *upload) read(ctx context.Context) (state, error) {
	var s state
	claim, err := u.client.Core().PersistentVolumeClaims(u.namespace).Get(ctx, u.name, metav1.GetOptions{})
	switch {
	case err == nil:
		s.claim = claim
	case !apierrors.IsNotFound(err):
		return s, fmt.Errorf("reading PVC %s/%s: %w", u.namespace, u.name, err)
	}
	if !u.dataVolume {
		return s, nil
	}
	dv, err := u.client.DataVolume(ctx, u.namespace, u.name)
	switch {
	case err == nil:
		s.dv = dv
	case !apierrors.IsNotFound(err):
		return s, fmt.Errorf("reading DataVolume %s/%s: %w", u.namespace, u.name, err)
	}
	return s, nil
}

func (u *upload) prepare(ctx context.Context) error {
	s, err := u.read(ctx)
	if err != nil {
		return err
	}
	exists := s.dv != nil || s.claim != nil && !u.dataVolume
	switch {
	case !exists && u.noCreate:
		return fmt.Errorf("%s %s/%s not found; without --no-create it is made", u.kind(), u.namespace, u.name)
	case !exists && s.claim != nil:
		return fmt.Errorf("PVC %s/%s exists and belongs to no DataVolume; upload to it by 'virtctl image-upload pvc %s'", u.namespace, u.name, u.name)
	case !exists && u.size == "":
		return fmt.Errorf("when creating a resource, the size must be specified: set --size")
	case !exists:
		return u.create(ctx)
	}
	if err := s.usable(u.name, u.overwrite); err != nil {
		return err
	}
	if err := u.unused(ctx, s.claim); err != nil {
		return err
	}
	u.say("Using existing PVC %s/%s", u.namespace, u.name)
	return u.mark(ctx, s.claim)
}

// usable returns an error if an existing volume can't be uploaded to.
func (s state) usable(name string, overwrite bool) error {
	switch {
	case s.dv != nil && (s.dv.Spec.Source == nil || s.dv.Spec.Source.Upload == nil):
		return fmt.Errorf("DataVolume %s does not have the source upload, so it is filled in another way", name)
	case s.dv != nil && s.dv.Status.Phase == cdiv1.Succeeded, !overwrite && s.claim != nil && s.claim.Annotations[layout.AnnPodPhase] == string(corev1.PodSucceeded):
		return fmt.Errorf("PVC %s already successfully imported/cloned/updated", name)
	case s.dv == nil && s.claim != nil && metav1.GetControllerOf(s.claim) != nil:
		owner := metav1.GetControllerOf(s.claim)
		return fmt.Errorf("PVC %s belongs to %s %s and can't be uploaded to by itself", name, owner.Kind, owner.Name)
	}
	return nil
}

// unused returns an error for a claim that a pod uses, before it is marked: a guest would run on the disk that
// is being replaced. Without the right to list pods the cluster decides, which checks again before it accepts
// an upload.
func (u *upload) unused(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if u.dataVolume || claim == nil {
		return nil
	}
	if _, marked := claim.Annotations[layout.AnnUploadTarget]; marked && !u.overwrite {
		return nil
	}
	pods, err := u.client.Core().Pods(u.namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for the pods that use PVC %s/%s: %w", u.namespace, u.name, err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; client.UsesClaim(pod, u.name) {
			return fmt.Errorf("PVC %s/%s is used by pod %s: stop the machine, or end the pod, and upload then", u.namespace, u.name, pod.Name)
		}
	}
	return nil
}

// mark makes a claim without a DataVolume accept an upload. Its content is replaced only with --overwrite.
func (u *upload) mark(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if u.dataVolume || claim == nil {
		return nil
	}
	// An earlier upload's permission and result must not apply to this one.
	annotations := map[string]any{}
	_, marked := claim.Annotations[layout.AnnUploadTarget]
	if !marked {
		annotations[layout.AnnUploadTarget], annotations[layout.AnnOverwrite] = "", layout.AnnOverwriteRefused
	}
	if u.archive != "" && claim.Annotations[layout.AnnContentType] == "" {
		annotations[layout.AnnContentType] = string(cdiv1.DataVolumeArchive)
	}
	if u.overwrite {
		annotations[layout.AnnOverwrite] = layout.AnnOverwriteAsked
	}
	phase := corev1.PodPhase(claim.Annotations[layout.AnnPodPhase])
	if phase != "" && !marked || u.overwrite && client.Ended(phase) {
		// The earlier upload has ended: this starts another worker.
		annotations[layout.AnnPodPhase], annotations[layout.AnnPodReady] = nil, nil
	}
	if len(annotations) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": claim.ResourceVersion, "annotations": annotations}})
	if err != nil {
		return fmt.Errorf("encoding the annotations of PVC %s/%s: %w", u.namespace, u.name, err)
	}
	_, err = u.client.Core().PersistentVolumeClaims(u.namespace).Patch(ctx, u.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("marking PVC %s/%s as an upload's target: %w", u.namespace, u.name, err)
	}
	return nil
}

func (u *upload) create(ctx context.Context) error {
	meta := metav1.ObjectMeta{Name: u.name, Namespace: u.namespace, Annotations: map[string]string{}, Labels: u.labels.set()}
	if u.forceBind {
		meta.Annotations[layout.AnnImmediate] = ""
	}
	var err error
	if u.dataVolume {
		err = u.client.CreateDataVolume(ctx, u.newDataVolume(meta))
	} else {
		_, err = u.client.Core().PersistentVolumeClaims(u.namespace).Create(ctx, u.newClaim(meta), metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("creating %s %s/%s: %w", u.kind(), u.namespace, u.name, err)
	}
	u.say("%s %s/%s created", u.kind(), u.namespace, u.name)
	return nil
}

func (d defaults) set() map[string]string {
	labels := map[string]string{}
	for name, value := range map[string]string{
		instancetype.DefaultInstancetypeLabel: d.instancetype, instancetype.DefaultInstancetypeKindLabel: d.instancetypeKind,
		instancetype.DefaultPreferenceLabel: d.preference, instancetype.DefaultPreferenceKindLabel: d.preferenceKind,
	} {
		if value != "" {
			labels[name] = value
		}
	}
	return labels
}

func (u *upload) shape() (class *string, access []corev1.PersistentVolumeAccessMode, mode *corev1.PersistentVolumeMode, size corev1.VolumeResourceRequirements) {
	if u.storageClass != "" {
		class = &u.storageClass
	}
	if u.accessMode != "" {
		access = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(u.accessMode)}
	}
	if u.volumeMode != "" {
		mode = new(corev1.PersistentVolumeMode(u.volumeMode))
	}
	// It was parsed before.
	size.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(u.size)}
	return class, access, mode, size
}

func (u *upload) newDataVolume(meta metav1.ObjectMeta) *cdiv1.DataVolume {
	dv := &cdiv1.DataVolume{ObjectMeta: meta}
	dv.Spec.Source = &cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}
	dv.Spec.ContentType = cdiv1.DataVolumeKubeVirt
	if u.archive != "" {
		dv.Spec.ContentType = cdiv1.DataVolumeArchive
	}
	dv.Spec.Storage = &cdiv1.StorageSpec{}
	dv.Spec.Storage.StorageClassName, dv.Spec.Storage.AccessModes, dv.Spec.Storage.VolumeMode, dv.Spec.Storage.Resources = u.shape()
	return dv
}

func (u *upload) newClaim(meta metav1.ObjectMeta) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: meta}
	// A new volume may contain old data, which nobody needs.
	claim.Annotations[layout.AnnUploadTarget], claim.Annotations[layout.AnnOverwrite] = "", layout.AnnOverwriteAsked
	claim.Annotations[layout.AnnContentType] = string(cdiv1.DataVolumeKubeVirt)
	if u.archive != "" {
		claim.Annotations[layout.AnnContentType] = string(cdiv1.DataVolumeArchive)
	}
	claim.Spec.StorageClassName, claim.Spec.AccessModes, claim.Spec.VolumeMode, claim.Spec.Resources = u.shape()
	if claim.Spec.AccessModes == nil {
		claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	return claim
}

func (u *upload) awaitReady(ctx context.Context) error {
	u.say("Waiting for PVC %s upload pod to be ready...", u.name)
	waiting := "no controller has handled it yet; is virt-controller running?"
	err := wait.PollUntilContextTimeout(ctx, look, u.patience(), true, func(context.Context) (bool, error) {
		// The timeout must not look like a failed request.
		s, err := u.read(ctx)
		if err != nil {
			return false, err
		}
		ready := false
		ready, waiting, err = s.ready(u.forceBind, waiting)
		return ready, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("%s %s/%s is not ready for an upload after %s: %s", u.kind(), u.namespace, u.name, u.patience(), waiting)
	}
	if err != nil {
		return err
	}
	u.say("Pod now ready")
	return nil
}

// ready reports whether the volume accepts an upload. Otherwise it returns the reason to wait, or an error if
// it never will.
func (s state) ready(bound bool, before string) (ready bool, waiting string, err error) {
	if s.listens() {
		return true, "", nil
	}
	if failed := s.failed(); failed != nil {
		return false, "", failed
	}
	switch {
	case s.dv != nil && s.dv.Status.Phase == cdiv1.WaitForFirstConsumer && !bound:
		return false, "", fmt.Errorf("cannot upload to DataVolume in %s phase, make sure the PVC is Bound, or use force-bind flag", s.dv.Status.Phase)
	case s.words() != "":
		return false, s.words(), nil
	case s.dv != nil && s.dv.Status.Phase != "":
		return false, "it is in phase " + string(s.dv.Status.Phase), nil
	case s.dv == nil && s.claim != nil && s.claim.Status.Phase == corev1.ClaimPending && s.claim.Annotations[layout.AnnPodPhase] == "":
		return false, "the claim is not bound; if its storage class waits for a first consumer, use --force-bind", nil
	}
	return false, before, nil
}

func (s state) listens() bool {
	return s.claim != nil && s.claim.Annotations[layout.AnnPodReady] == "true" || s.dv != nil && s.dv.Status.Phase == cdiv1.UploadReady
}

func (s state) words() string {
	if s.dv != nil {
		for _, c := range s.dv.Status.Conditions {
			if c.Type == cdiv1.DataVolumeRunning && c.Message != "" {
				return c.Message
			}
		}
	}
	if s.claim != nil {
		return s.claim.Annotations[layout.AnnRunningMessage]
	}
	return ""
}

// failed returns why the volume will never be filled, nil while it may.
func (s state) failed() error {
	name := ""
	switch {
	case s.dv != nil && s.dv.Status.Phase == cdiv1.Failed:
		name = "DataVolume " + s.dv.Name
	case s.claim != nil && s.claim.Annotations[layout.AnnPodPhase] == string(corev1.PodFailed):
		name = "PVC " + s.claim.Name
	default:
		return nil
	}
	words := s.words()
	if words == "" {
		words = "its conditions say why"
	}
	return fmt.Errorf("%s has failed: %s", name, words)
}

func (s state) restarts() int32 {
	if s.dv == nil {
		return 0
	}
	return s.dv.Status.RestartCount
}

func (u *upload) awaitDone(ctx context.Context, before int32) error {
	return wait.PollUntilContextCancel(ctx, look, true, func(ctx context.Context) (bool, error) {
		s, err := u.read(ctx)
		switch {
		case err != nil:
			return false, err
		case s.failed() != nil:
			return false, s.failed()
		case u.dataVolume && s.dv == nil, s.claim == nil && s.dv == nil:
			return false, fmt.Errorf("%s %s/%s was deleted", u.kind(), u.namespace, u.name)
		case s.restarts() > before:
			return false, fmt.Errorf("the upload was received and then failed: %s", s.words())
		}
		return s.dv != nil && s.dv.Status.Phase == cdiv1.Succeeded ||
			s.dv == nil && s.claim != nil && s.claim.Annotations[layout.AnnPodPhase] == string(corev1.PodSucceeded), nil
	})
}
