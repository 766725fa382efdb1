// Package workerpod renders what is made for a worker that fills a claim: its
// pod, and for one that serves uploads its Service and its Secret.
//
// It is pure, and owns how these objects look: names, mounts and rights in the
// pod. When they are made is package datavolume's to say, what the worker does
// with the mounts is package transfer's.
package workerpod

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/datavolume"
)

const (
	// user that workers are, as launchers: both read and write the disks.
	user = 107
	// diskGroup owns block devices on nodes (Debian, Red Hat). Where the container
	// runtime does not hand a device to the pod's user, the group opens it; a pod has
	// no other device than its claim's.
	diskGroup = 6
	// command in the worker's image.
	command   = "virt-importer"
	container = "importer"
	// workSize bounds, together with the disk's size, the journals and what of a
	// stream has to be kept.
	workSize = 1 << 30
	// startupTimeout is how many seconds the kubelet waits for a worker that is to take something, startupAttempts
	// how often before it starts the container anew.
	startupTimeout, startupAttempts = 60, 5
)

// Settings are the same for all workers.
type Settings struct {
	Image      string
	PullPolicy corev1.PullPolicy
	Config     datavolume.Config
}

// Pod renders a worker of the DataVolume. A pod in another namespace than the
// DataVolume's has no owner.
func Pod(w *datavolume.Worker, dv *cdiv1.DataVolume, s Settings) (*corev1.Pod, error) {
	pod, err := pod(w, s)
	if err != nil {
		return nil, err
	}
	pod.Spec.PriorityClassName = dv.Spec.PriorityClassName
	addSource(&pod.Spec, w.Task, dv.Spec.Source)
	if w.Namespace == dv.Namespace {
		// A service account of another namespace is not the DataVolume's author's to use.
		pod.Spec.ServiceAccountName = dv.Spec.ServiceAccountName
		// Nor are networks of another namespace.
		passOn(dv.Annotations, pod)
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	}
	pod.Annotations[datavolume.AnnTarget] = dv.Namespace + "/" + dv.Name
	return pod, nil
}

// ClaimPod renders the worker of a claim that has no DataVolume: it takes an
// upload.
func ClaimPod(w *datavolume.Worker, s Settings) (*corev1.Pod, error) {
	pod, err := pod(w, s)
	if err != nil {
		return nil, err
	}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.Claim, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))}
	passOn(w.Claim.Annotations, pod)
	return pod, nil
}

// passOn gives a worker those annotations of its owner that are meant for it.
func passOn(annotations map[string]string, pod *corev1.Pod) {
	for _, name := range []string{
		datavolume.AnnPodNetworks, datavolume.AnnPodDefaultNetwork, datavolume.AnnPodIstio, datavolume.AnnPodLinkerd,
	} {
		if value, set := annotations[name]; set {
			pod.Annotations[name] = value
		}
	}
}

func labels(component string) map[string]string {
	return map[string]string{
		datavolume.LabelApp:       datavolume.LabelAppValue,
		datavolume.LabelComponent: component,
		v1.AppLabel:               datavolume.WorkerAppLabel,
	}
}

func pod(w *datavolume.Worker, s Settings) (*corev1.Pod, error) {
	task, err := json.Marshal(w.Task)
	if err != nil {
		return nil, fmt.Errorf("encoding the task of worker %s: %w", w.Name, err)
	}
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyOnFailure,
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		TerminationGracePeriodSeconds: new(int64(10)),
		ImagePullSecrets:              s.Config.ImagePullSecrets,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsUser: new(int64(user)), RunAsGroup: new(int64(user)), RunAsNonRoot: new(true), FSGroup: new(int64(user)),
			// A file system with many files is not walked through at each start.
			FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: container, Image: s.Image, ImagePullPolicy: s.PullPolicy, Command: []string{command},
			Env:       append([]corev1.EnvVar{{Name: transfer.TaskEnv, Value: string(task)}}, proxy(s.Config.Proxy)...),
			Resources: s.Config.Resources,
			Ports:     []corev1.ContainerPort{{Name: "progress", ContainerPort: transfer.ProgressPort}},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
	mountDir(&spec, "work", transfer.WorkDir, corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(workSize+w.Task.Size, resource.BinarySI)},
	})
	addClaim(&spec, w)
	if c := w.Certificate; c != nil {
		mountDir(&spec, "tls", transfer.TLSDir, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: c.Secret}})
	}
	if w.Task.Kind == transfer.KindUpload {
		c := &spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "upload", ContainerPort: transfer.UploadPort})
		// The kubelet would warn of a readiness probe that comes before the worker listens.
		c.StartupProbe = &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command, transfer.AwaitPortFlag, strconv.Itoa(transfer.UploadPort)}}},
			TimeoutSeconds: startupTimeout, FailureThreshold: startupAttempts,
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: w.Name, Namespace: w.Namespace, Labels: withClaim(labels(w.Component), w),
			Annotations: map[string]string{
				datavolume.AnnRestarts: strconv.Itoa(int(w.RestartsBefore)),
				// A proxy in the pod goes on when the worker has ended, and the pod with it.
				datavolume.AnnPodIstio: "false", datavolume.AnnPodLinkerd: "disabled",
			},
		},
		Spec: spec,
	}, nil
}

// proxy is how programs are told of one.
func proxy(p *cdiv1.ImportProxy) []corev1.EnvVar {
	if p == nil {
		return nil
	}
	var out []corev1.EnvVar
	for _, v := range []struct {
		name  string
		value *string
	}{{"HTTP_PROXY", p.HTTPProxy}, {"HTTPS_PROXY", p.HTTPSProxy}, {"NO_PROXY", p.NoProxy}} {
		if v.value != nil && *v.value != "" {
			out = append(out, corev1.EnvVar{Name: v.name, Value: *v.value})
		}
	}
	return out
}

func withClaim(labels map[string]string, w *datavolume.Worker) map[string]string {
	if w.Task.Kind == transfer.KindUpload {
		labels[datavolume.LabelService] = w.Name
	}
	return labels
}

// lostSeconds is how long Kubernetes leaves pods on a node that it has lost.
const lostSeconds = int64(300)

// tolerations let the worker follow its claim to a node that is kept for others:
// there it was bound by a VM that may run there, and the worker has no choice any
// more. A worker that binds its claim itself keeps to the nodes for everybody.
func tolerations(claim *corev1.PersistentVolumeClaim) []corev1.Toleration {
	if claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	return []corev1.Toleration{
		// The first that fits a taint counts: a node that is lost the worker leaves as
		// any pod does.
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(lostSeconds)},
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(lostSeconds)},
		{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	}
}

// addClaim gives the worker its claim: to write, or for a source to read.
func addClaim(spec *corev1.PodSpec, w *datavolume.Worker) {
	const volume = "claim"
	reads := w.Task.Kind == transfer.KindCloneSource
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: w.Claim.Name, ReadOnly: reads},
	}})
	spec.Tolerations = tolerations(w.Claim)
	c := &spec.Containers[0]
	if w.Task.Block {
		device := transfer.TargetDevice
		if reads {
			device = transfer.SourceDevice
		}
		c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: volume, DevicePath: device})
		spec.SecurityContext.SupplementalGroups = []int64{diskGroup}
		return
	}
	dir := transfer.TargetDir
	if reads {
		dir = transfer.SourceDir
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: dir, ReadOnly: reads})
}

// addSource mounts what the source needs beside its address.
func addSource(spec *corev1.PodSpec, task transfer.Task, source *cdiv1.DataVolumeSource) {
	secret := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}
	}
	authorities := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}
	}
	switch task.Kind {
	case transfer.KindHTTP:
		if name := source.HTTP.SecretRef; name != "" {
			mountDir(spec, "credentials", transfer.CredentialsDir, secret(name))
		}
		if name := source.HTTP.CertConfigMap; name != "" {
			mountDir(spec, "ca", transfer.CADir, authorities(name))
		}
		for i, name := range source.HTTP.SecretExtraHeaders {
			number := strconv.Itoa(i)
			mountDir(spec, "headers-"+number, transfer.HeadersDir+"/"+number, secret(name))
		}
	case transfer.KindRegistry:
		if name := source.Registry.SecretRef; name != nil && *name != "" {
			mountDir(spec, "credentials", transfer.CredentialsDir, secret(*name))
		}
		if name := source.Registry.CertConfigMap; name != nil && *name != "" {
			mountDir(spec, "ca", transfer.CADir, authorities(*name))
		}
		if datavolume.NodePull(source.Registry) {
			mountDir(spec, "source", transfer.SourceDir, corev1.VolumeSource{Image: &corev1.ImageVolumeSource{
				Reference: datavolume.NodeImage(source.Registry), PullPolicy: corev1.PullIfNotPresent,
			}})
		}
	}
}

func mountDir(spec *corev1.PodSpec, name, path string, source corev1.VolumeSource) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	readOnly := source.EmptyDir == nil
	c := &spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
}

// Service leads to the worker that takes an upload.
func Service(pod *corev1.Pod) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: beside(pod, pod.Name),
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{datavolume.LabelService: pod.Name},
			Ports:    []corev1.ServicePort{{Name: "upload", Port: transfer.UploadPort, TargetPort: intstr.FromInt32(transfer.UploadPort)}},
		},
	}
}

// Secret holds a worker's certificate.
func Secret(pod *corev1.Pod, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: beside(pod, name), Type: corev1.SecretTypeOpaque, Data: data}
}

// beside is the metadata of what a pod needs. It has the pod's owner and not the
// pod as owner, since it serves the pod that replaces a lost one, too.
func beside(pod *corev1.Pod, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: pod.Namespace, Labels: labels(pod.Labels[datavolume.LabelComponent]), OwnerReferences: pod.OwnerReferences,
	}
}
