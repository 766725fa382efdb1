// Package workerpod renders the objects of a worker that fills a claim: its pod, and for uploads also its Service and
// Secret. It owns their content only. Package datavolume decides when they are created; package transfer defines the
// worker's use of the mounts.
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

	"drydock.dev/drydock/internal/contracts/logline"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

const (
	// Workers and launchers have this user: both read and write the disks.
	user = 107
	// diskGroup owns block devices on nodes (Debian, Red Hat). It can open a device that the container runtime does not
	// give to the pod's user; a pod has no other device than its claim's.
	diskGroup = 6
	command   = "virt-importer"
	container = "importer"
	// Journals and buffered parts of a stream need space besides the disk.
	workSize = 1 << 30
	// An upload worker's startup probe: its seconds, and its attempts before a restart of the container.
	startupTimeout, startupAttempts = 60, 5
)

// Settings are the same for all workers.
type Settings struct {
	Image      string
	PullPolicy corev1.PullPolicy
	Config     datavolume.Config
	LogFormat  logline.Format
}

// Pod returns a DataVolume's worker pod. In another namespace it has no owner.
func Pod(w *datavolume.Worker, dv *cdiv1.DataVolume, s Settings) (*corev1.Pod, error) {
	pod, err := pod(w, s)
	if err != nil {
		return nil, err
	}
	addSource(&pod.Spec, w.Task, dv.Spec.Source)
	if w.Namespace == dv.Namespace {
		// The DataVolume's author may not be permitted to use another namespace's service accounts, networks or
		// priorities.
		pod.Spec.PriorityClassName = dv.Spec.PriorityClassName
		pod.Spec.ServiceAccountName = dv.Spec.ServiceAccountName
		passOn(dv.Annotations, pod)
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(dv, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))}
	}
	pod.Annotations[datavolume.AnnTarget] = dv.Namespace + "/" + dv.Name
	return pod, nil
}

// ClaimPod returns the worker pod for an upload to a claim without a DataVolume.
func ClaimPod(w *datavolume.Worker, s Settings) (*corev1.Pod, error) {
	pod, err := pod(w, s)
	if err != nil {
		return nil, err
	}
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(w.Claim, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))}
	passOn(w.Claim.Annotations, pod)
	return pod, nil
}

// passOn copies the annotations that are meant for the worker.
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
			// Do not walk through a file system with many files at each start.
			FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: container, Image: s.Image, ImagePullPolicy: s.PullPolicy, Command: []string{command}, Args: s.LogFormat.Args(),
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
	podLabels := labels(w.Component)
	if w.Task.Kind == transfer.KindUpload {
		podLabels[datavolume.LabelService] = w.Name
		c := &spec.Containers[0]
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "upload", ContainerPort: transfer.UploadPort})
		// The kubelet would emit warnings for a readiness probe before the worker listens.
		c.StartupProbe = &corev1.Probe{
			ProbeHandler:   corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{command, transfer.AwaitPortFlag, strconv.Itoa(transfer.UploadPort)}}},
			TimeoutSeconds: startupTimeout, FailureThreshold: startupAttempts,
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: w.Name, Namespace: w.Namespace, Labels: podLabels,
			Annotations: map[string]string{
				datavolume.AnnRestarts: strconv.Itoa(int(w.RestartsBefore)),
				// A proxy sidecar would run on after the worker has ended, and so would the pod.
				datavolume.AnnPodIstio: "false", datavolume.AnnPodLinkerd: "disabled",
			},
		},
		Spec: spec,
	}, nil
}

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

// lostSeconds is the time that Kubernetes leaves pods on a lost node.
const lostSeconds = int64(300)

// tolerations let the worker follow its bound claim to a reserved node: a VM that may run there has bound it. A worker
// that binds its claim itself stays off reserved nodes.
func tolerations(claim *corev1.PersistentVolumeClaim) []corev1.Toleration {
	if claim.Status.Phase != corev1.ClaimBound {
		return nil
	}
	return []corev1.Toleration{
		// The first matching toleration counts: like any pod, the worker leaves a lost node.
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(lostSeconds)},
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(lostSeconds)},
		{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
	}
}

// addClaim mounts the claim, read-only for a source.
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

// addSource mounts the source's Secrets and ConfigMaps.
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

// Service returns the Service of an upload worker.
func Service(pod *corev1.Pod) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: beside(pod, pod.Name),
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{datavolume.LabelService: pod.Name},
			Ports:    []corev1.ServicePort{{Name: "upload", Port: transfer.UploadPort, TargetPort: intstr.FromInt32(transfer.UploadPort)}},
		},
	}
}

// Secret returns the Secret with a worker's certificate.
func Secret(pod *corev1.Pod, name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: beside(pod, name), Type: corev1.SecretTypeOpaque, Data: data}
}

// beside gives an accompanying object the pod's owner, since it also serves the successor of a lost pod.
func beside(pod *corev1.Pod, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: pod.Namespace, Labels: labels(pod.Labels[datavolume.LabelComponent]), OwnerReferences: pod.OwnerReferences,
	}
}
