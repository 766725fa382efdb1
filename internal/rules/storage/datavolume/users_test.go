package datavolume

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
)

func TestWhichPodsWriteToAClaim(t *testing.T) {
	uses := func(claim string, readOnly bool) corev1.Volume {
		return corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly}}}
	}
	for name, test := range map[string]struct {
		phase   corev1.PodPhase
		volumes []corev1.Volume
		want    bool
	}{
		"it has none":              {corev1.PodRunning, nil, false},
		"it has other volumes":     {corev1.PodRunning, []corev1.Volume{{Name: "scratch"}, uses("other", false)}, false},
		"it writes to it":          {corev1.PodRunning, []corev1.Volume{{Name: "scratch"}, uses("disk", false)}, true},
		"it will write to it":      {corev1.PodPending, []corev1.Volume{uses("disk", false)}, true},
		"it reads it":              {corev1.PodRunning, []corev1.Volume{uses("disk", true)}, false},
		"it reads it and writes":   {corev1.PodRunning, []corev1.Volume{uses("disk", true), uses("disk", false)}, true},
		"it has written and ended": {corev1.PodSucceeded, []corev1.Volume{uses("disk", false)}, false},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: test.volumes}, Status: corev1.PodStatus{Phase: test.phase}}
		if got := Writes(pod, "disk"); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// userOf is a pod with the claim disk in a volume.
func userOf(edits ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"},
	}}}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

var (
	mounts  = []corev1.VolumeMount{{Name: "other"}, {Name: "v"}}
	mounter = func(pod *corev1.Pod) { pod.Spec.Containers = []corev1.Container{{}, {VolumeMounts: mounts}} }
)

func TestWhichPodsUseAClaim(t *testing.T) {
	inPhase := func(phase corev1.PodPhase) func(*corev1.Pod) {
		return func(pod *corev1.Pod) { pod.Status.Phase = phase }
	}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{
		"it has none":               {&corev1.Pod{}, false},
		"a container mounts it":     {userOf(mounter), true},
		"one will":                  {userOf(mounter, inPhase(corev1.PodPending)), true},
		"one has, and all ended":    {userOf(mounter, inPhase(corev1.PodFailed)), false},
		"one is about to end":       {userOf(mounter, func(pod *corev1.Pod) { pod.DeletionTimestamp = &metav1.Time{Time: noon} }), true},
		"no container does":         {userOf(), false},
		"one mounts another volume": {userOf(mounter, func(pod *corev1.Pod) { pod.Spec.Volumes[0].Name = "w" }), false},
		"it only reads":             {userOf(mounter, func(pod *corev1.Pod) { pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true }), true},
		"as a device": {userOf(func(pod *corev1.Pod) {
			pod.Spec.Containers = []corev1.Container{{VolumeDevices: []corev1.VolumeDevice{{Name: "v"}}}}
		}), true},
		"before the others start": {userOf(func(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{{VolumeMounts: mounts}} }), true},
		"to look after the others": {userOf(func(pod *corev1.Pod) {
			pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{VolumeMounts: mounts}}}
		}), true},
		"it is the pod's own": {userOf(mounter, func(pod *corev1.Pod) {
			pod.Name, pod.Spec.Volumes = "disk", []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
		}), false},
	} {
		if got := Uses(test.pod, "disk"); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	own := userOf(mounter, func(pod *corev1.Pod) {
		pod.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}
	})
	if !Uses(own, "pod-v") {
		t.Error("a pod does not use the claim that is made for it")
	}
}

func TestWhichPodKeepsAClaimFromBeingFilled(t *testing.T) {
	called := func(name string) func(*corev1.Pod) { return func(pod *corev1.Pod) { pod.Name = name } }
	pods := []corev1.Pod{*userOf(), *userOf(mounter, called("cdi-upload-disk")), *userOf(mounter, called("importer-disk")),
		*userOf(mounter, called("guest")), *userOf(mounter, called("web"))}
	for name, test := range map[string]struct {
		spared []string
		want   string
	}{
		"the first beside the workers": {nil, "guest"},
		"the first that counts":        {[]string{"guest"}, "web"},
		"none":                         {[]string{"guest", "web"}, ""},
	} {
		got, err := UserOf(pods, "disk", func(pod *corev1.Pod) (bool, error) {
			for _, spared := range test.spared {
				if spared == pod.Name {
					return true, nil
				}
			}
			return false, nil
		})
		if got != test.want || err != nil {
			t.Errorf("%s: %q %v, want %q", name, got, err, test.want)
		}
	}
	unknown := errors.New("unknown")
	if _, err := UserOf(pods, "disk", func(*corev1.Pod) (bool, error) { return true, unknown }); !errors.Is(err, unknown) {
		t.Errorf("who is spared is not known: %v", err)
	}
}

func TestWhatIsStillToFillAClaim(t *testing.T) {
	owned := func(claim *corev1.PersistentVolumeClaim) {
		claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(newDV(httpSource()), cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	}
	marked := func(phase corev1.PodPhase) func(*corev1.PersistentVolumeClaim) {
		return func(claim *corev1.PersistentVolumeClaim) {
			claim.Annotations = map[string]string{layout.AnnUploadTarget: "", layout.AnnPodPhase: string(phase), layout.AnnRunningMessage: "no image"}
		}
	}
	refused := func(claim *corev1.PersistentVolumeClaim) {
		marked(corev1.PodFailed)(claim)
		claim.Annotations[layout.AnnRunningReason] = string(transfer.ReasonHasContent)
	}
	onceMore := func(claim *corev1.PersistentVolumeClaim) { delete(claim.Annotations, layout.AnnPodPhase) }
	const awaits = "the claim disk awaits an upload: upload its disk, or take away its annotation cdi.kubevirt.io/storage.upload.target to use it as it is"
	for name, test := range map[string]struct {
		edits []func(*corev1.PersistentVolumeClaim)
		dv    *cdiv1.DataVolume
		want  string
	}{
		"nothing":                              {nil, nil, ""},
		"a DataVolume that has":                {[]func(*corev1.PersistentVolumeClaim){owned}, newDV(httpSource(), inPhase(cdiv1.Succeeded)), ""},
		"and whose claim is marked":            {[]func(*corev1.PersistentVolumeClaim){owned, marked("")}, newDV(httpSource(), inPhase(cdiv1.Succeeded)), ""},
		"a DataVolume that has not":            {[]func(*corev1.PersistentVolumeClaim){owned}, newDV(httpSource()), "the claim disk is not filled yet by its DataVolume disk"},
		"one that failed":                      {[]func(*corev1.PersistentVolumeClaim){owned}, newDV(httpSource(), inPhase(cdiv1.Failed)), "the claim disk is not filled yet by its DataVolume disk"},
		"one that is gone":                     {[]func(*corev1.PersistentVolumeClaim){owned}, nil, "the DataVolume disk, which fills the claim disk, does not exist"},
		"an upload that is awaited":            {[]func(*corev1.PersistentVolumeClaim){marked("")}, nil, awaits},
		"one whose worker is at work":          {[]func(*corev1.PersistentVolumeClaim){marked(corev1.PodRunning)}, nil, awaits},
		"one that has filled it":               {[]func(*corev1.PersistentVolumeClaim){marked(corev1.PodSucceeded)}, nil, ""},
		"one that would have replaced content": {[]func(*corev1.PersistentVolumeClaim){refused}, nil, ""},
		"and is to replace it by now":          {[]func(*corev1.PersistentVolumeClaim){refused, onceMore}, nil, awaits},
		"one that failed, and left nothing": {[]func(*corev1.PersistentVolumeClaim){marked(corev1.PodFailed)}, nil, "the upload to the claim disk has failed (no image): " +
			"upload again with --overwrite, or take away the claim's annotation cdi.kubevirt.io/storage.upload.target to use it as it is"},
	} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk"}}
		for _, edit := range test.edits {
			edit(claim)
		}
		if got := Unfilled(claim, test.dv); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if AwaitsUpload(nil) {
		t.Error("no claim awaits an upload")
	}
}
