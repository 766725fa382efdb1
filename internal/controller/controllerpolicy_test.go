package controller

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/transfer"
	"drydock.dev/drydock/internal/policytest"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
	"drydock.dev/drydock/internal/rules/pod/selinux"
	"drydock.dev/drydock/internal/rules/pod/workerpod"
	"drydock.dev/drydock/internal/rules/storage/datavolume"
)

const controllerPolicies = "../../config/rbac/controller-policy.yaml"

func launchers(t *testing.T) map[string]*corev1.Pod {
	t.Helper()
	files, err := filepath.Glob("../rules/pod/launcherpod/testdata/*.vmi.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no VMIs: %v", err)
	}
	out := map[string]*corev1.Pod{}
	settings := clusterconfig.FromKubeVirt(nil)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		vmi := &v1.VirtualMachineInstance{}
		if err := yaml.UnmarshalStrict(text, vmi); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".vmi.yaml")
		pod, err := launcherpod.Render(vmi, settings, layout.DevelLauncherImage, launcherpod.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		moves := pod.DeepCopy()
		if err := launcherpod.LetPostCopy(moves); err != nil {
			t.Fatal(err)
		}
		hold, err := launcherpod.RenderProvisioning(vmi, settings, layout.DevelLauncherImage, launcherpod.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		maintained, err := launcherpod.RenderProvisioningFor(&corev1.Pod{}, []string{"data"}, vmi, settings, layout.DevelLauncherImage, launcherpod.Facts{})
		if err != nil {
			t.Fatal(err)
		}
		out["the launcher pod of "+name], out["a target pod of "+name] = pod, moves
		out["the provisioning pod of "+name], out["a maintenance pod's provisioning pod for "+name] = hold, maintained
	}
	return out
}

func workerPods(t *testing.T) map[string]*corev1.Pod {
	t.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "shop", UID: "11-2"}}
	out := map[string]*corev1.Pod{}
	for name, c := range map[string]struct {
		kind   transfer.Kind
		source cdiv1.DataVolumeSource
	}{
		"an import by HTTP": {transfer.KindHTTP, cdiv1.DataVolumeSource{HTTP: &cdiv1.DataVolumeSourceHTTP{
			SecretRef: "s", CertConfigMap: "c", SecretExtraHeaders: []string{"h"}}}},
		"an import of an image": {transfer.KindRegistry, cdiv1.DataVolumeSource{Registry: &cdiv1.DataVolumeSourceRegistry{
			URL: new("docker://quay.io/disk:1"), PullMethod: new(cdiv1.RegistryPullNode), SecretRef: new("s")}}},
		"a blank disk":          {transfer.KindBlank, cdiv1.DataVolumeSource{Blank: &cdiv1.DataVolumeBlankImage{}}},
		"an upload":             {transfer.KindUpload, cdiv1.DataVolumeSource{Upload: &cdiv1.DataVolumeSourceUpload{}}},
		"the source of a clone": {transfer.KindCloneSource, cdiv1.DataVolumeSource{PVC: &cdiv1.DataVolumeSourcePVC{}}},
	} {
		for _, block := range []bool{false, true} {
			dv := &cdiv1.DataVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk", Namespace: "shop", UID: "1"}}
			dv.Spec.Source, dv.Spec.ServiceAccountName = &c.source, "puller"
			w := &datavolume.Worker{
				Name: datavolume.WorkerName(dv), Namespace: "shop", Component: datavolume.ComponentImporter, Claim: claim,
				Task: transfer.Task{Kind: c.kind, Block: block}, Certificate: &datavolume.Certificate{Secret: "cdi-upload-disk-11"},
			}
			s := workerpod.Settings{Image: "importer", Config: datavolume.ConfigOf(nil)}
			pod, err := workerpod.Pod(w, dv, s)
			if err != nil {
				t.Fatal(err)
			}
			of, err := workerpod.ClaimPod(w, s)
			if err != nil {
				t.Fatal(err)
			}
			if block {
				name += " of a block device"
			}
			out[name], out[name+", without a DataVolume"] = pod, of
		}
	}
	return out
}

// inAMesh changes a pod as the webhook of a service mesh does.
func inAMesh(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	pod.Spec.InitContainers = []corev1.Container{{Name: "istio-init", Image: "proxy", SecurityContext: &corev1.SecurityContext{
		RunAsUser: new(int64(0)), RunAsNonRoot: new(false), Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}},
	}}}
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "istio-proxy", Image: "proxy"})
	pod.Spec.Volumes = append(pod.Spec.Volumes, tokenFor("istio-ca"),
		corev1.Volume{Name: "istio-envoy", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	return pod
}

func tokenFor(audience string) corev1.Volume {
	return corev1.Volume{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: audience}}},
	}}}
}

func TestVirtControllerMakesItsPods(t *testing.T) {
	policy := policytest.Load(t, controllerPolicies, "virt-controller-pods")
	alone := launchers(t)
	maps.Copy(alone, workerPods(t))
	alone["an attachment pod"] = attachmentPod()
	pods := maps.Clone(alone)
	for name, pod := range alone {
		if !slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.HostPath != nil }) {
			pods[name+", in a service mesh"] = inAMesh(pod)
		}
	}
	for name, pod := range pods {
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		pod.Namespace = "shop"
		if got := policy.Answer(t, policytest.Write{By: virtController, Resource: "pods", New: pod}); got != "" {
			t.Errorf("%s: answered %q", name, got)
		}
		changed := pod.DeepCopy()
		changed.Annotations, changed.Finalizers = map[string]string{launcherpod.NetworksAnnotation: "[]"}, nil
		if got := policy.Answer(t, policytest.Write{By: virtController, Resource: "pods", Old: pod, New: changed}); got != "" {
			t.Errorf("%s is changed: answered %q", name, got)
		}
		if got := policy.Answer(t, policytest.Write{By: virtController, Resource: "pods", Old: pod}); got != "" {
			t.Errorf("%s is deleted: answered %q", name, got)
		}
	}
}

func edited(pod *corev1.Pod, edit func(*corev1.Pod)) *corev1.Pod {
	pod = pod.DeepCopy()
	edit(pod)
	return pod
}

func withVolume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: "/v"})
	}
}

// badPod is a pod that virt-controller must not make, and a part of the refusal.
type badPod struct {
	edit func(*corev1.Pod)
	want string
}

func sidecar(edit func(*corev1.Container)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.Container{Name: "beside", Image: "evil", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{}}}
		edit(&c)
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
}

func nodeFolder(path string) corev1.VolumeSource {
	return corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectory)}}
}

// An attacker with virt-controller's account would like to make these pods.
func badPods() map[string]badPod {
	const node, ours, privileges, volumes, token = "share nothing with their node", "one container of Drydock's", "no pods with privileges",
		"volumes that Drydock's pods have", "only pods without a token"
	bad := map[string]badPod{
		"no pod of Drydock's":           {func(p *corev1.Pod) { delete(p.Labels, v1.AppLabel) }, "only Drydock's pods"},
		"a maintenance pod":             {func(p *corev1.Pod) { p.Labels[v1.AppLabel] = layout.MaintenanceApp }, "only Drydock's pods"},
		"the node's network":            {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, node},
		"the node's processes":          {func(p *corev1.Pod) { p.Spec.HostPID = true }, node},
		"on a node of its choice":       {func(p *corev1.Pod) { p.Spec.NodeName = "control-plane" }, node},
		"as root":                       {func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = new(int64(0)) }, node},
		"without a security context":    {func(p *corev1.Pod) { p.Spec.SecurityContext = nil }, node},
		"without a seccomp profile":     {func(p *corev1.Pod) { p.Spec.SecurityContext.SeccompProfile = nil }, node},
		"a container as root":           {func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.RunAsUser = new(int64(0)) }, ours},
		"a container without a context": {func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = nil }, ours},
		"a capability": {func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
		}, ours},
		"an unknown container alone": {func(p *corev1.Pod) { p.Spec.Containers[0].Name = "c" }, ours},
		"privileged":                 {func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext.Privileged = new(true) }, privileges},
		"a container beside it, privileged": {sidecar(func(c *corev1.Container) {
			c.SecurityContext.Privileged = new(true)
		}), privileges},
		"a container beside it with a capability": {sidecar(func(c *corev1.Container) {
			c.SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
		}), privileges},
		"a port of the node": {func(p *corev1.Pod) { p.Spec.Containers[0].Ports = []corev1.ContainerPort{{HostPort: 1}} }, privileges},
		"a token by itself":  {func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = nil }, token},
		"a token for the API by its URL": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, tokenFor("https://kubernetes.default.svc"))
		}, token},
		"a file of the node": {withVolume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: "/dev/sda", Type: new(corev1.HostPathBlockDev)}}), volumes},
		"anything of the node":   {withVolume(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}), volumes},
		"a volume of a driver's": {withVolume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", ReadOnly: new(true)}}), volumes},
		"a driver's to write beside it": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}})
			mountBeside(p)
		}, volumes},
		"a folder for another user": {func(p *corev1.Pod) { withVolume(nodeFolder("/etc"))(p); mountBeside(p) }, volumes},
	}
	maps.Copy(bad, badIdentities(ours, node))
	return bad
}

// badIdentities returns those whose processes have too many rights on the node; ours and node are parts of refusals.
func badIdentities(ours, node string) map[string]badPod {
	const groups, types = "only pods in the group 107", "an SELinux type for containers"
	inPod := func(edit func(*corev1.PodSecurityContext)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { edit(p.Spec.SecurityContext) }
	}
	inOurs := func(edit func(*corev1.SecurityContext)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { edit(p.Spec.Containers[0].SecurityContext) }
	}
	return map[string]badPod{
		"an init container of a name of Drydock's, as root": {func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: nodeFolder("/etc")})
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{
				Name: layout.ComputeContainer, Image: "evil", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}},
				SecurityContext: &corev1.SecurityContext{RunAsUser: new(int64(0)), RunAsNonRoot: new(false)},
			})
			if p.Spec.Containers[0].Name == layout.ComputeContainer {
				p.Spec.Containers[0].Name = "hold"
			}
		}, ours},
		"an init container of Drydock's alone": {func(p *corev1.Pod) {
			p.Spec.InitContainers = p.Spec.Containers
			p.Spec.Containers = []corev1.Container{{Name: "beside", Image: "evil"}}
		}, ours},
		"root's group":              {inPod(func(s *corev1.PodSecurityContext) { s.RunAsGroup = new(int64(0)) }), groups},
		"the image's group":         {inPod(func(s *corev1.PodSecurityContext) { s.RunAsGroup = nil }), groups},
		"root's group for volumes":  {inPod(func(s *corev1.PodSecurityContext) { s.FSGroup = new(int64(0)) }), groups},
		"root's group beside":       {inPod(func(s *corev1.PodSecurityContext) { s.SupplementalGroups = []int64{0} }), groups},
		"a container in root's":     {inOurs(func(s *corev1.SecurityContext) { s.RunAsGroup = new(int64(0)) }), ours},
		"a type without bounds":     {inPod(func(s *corev1.PodSecurityContext) { s.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"} }), types},
		"another SELinux user":      {inPod(func(s *corev1.PodSecurityContext) { s.SELinuxOptions = &corev1.SELinuxOptions{User: "unconfined_u"} }), types},
		"the level of all pods":     {inPod(func(s *corev1.PodSecurityContext) { s.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c0.c1023"} }), types},
		"a container with its type": {inOurs(func(s *corev1.SecurityContext) { s.SELinuxOptions = &corev1.SELinuxOptions{Type: "container_t"} }), ours},
		"a container beside it without bounds": {sidecar(func(c *corev1.Container) {
			c.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		}), types},
		"no AppArmor": {inPod(func(s *corev1.PodSecurityContext) {
			s.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}), node},
		"a container without AppArmor": {inOurs(func(s *corev1.SecurityContext) {
			s.AppArmorProfile = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
		}), ours},
	}
}

func mountBeside(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "beside", VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/v"}}})
}

func TestVirtControllerMakesNoOtherPods(t *testing.T) {
	policy := policytest.Load(t, controllerPolicies, "virt-controller-pods")
	pods := launchers(t)
	launcher, hold := pods["the launcher pod of minimal-emulated"], pods["the provisioning pod of minimal-emulated"]
	worker := workerPods(t)["a blank disk"]
	answer := func(namespace string, pod *corev1.Pod) string {
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		pod.Namespace = namespace
		return policy.Answer(t, policytest.Write{By: virtController, Resource: "pods", New: pod})
	}
	for name, bad := range badPods() {
		for kind, pod := range map[string]*corev1.Pod{"launcher": launcher, "provisioning": hold, "worker": worker, "attachment": attachmentPod()} {
			if got := answer("shop", edited(pod, bad.edit)); !strings.Contains(got, bad.want) {
				t.Errorf("a pod like a %s pod, %s: answered %q", kind, name, got)
			}
		}
	}
	identity := func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
			CSI: &corev1.CSIVolumeSource{Driver: "csi.spiffe.io", ReadOnly: new(true)}}})
		mountBeside(p)
	}
	folder := func(p *corev1.Pod) {
		withVolume(nodeFolder("/var"))(p)
		p.Spec.SecurityContext.SupplementalGroupsPolicy = new(corev1.SupplementalGroupsPolicyStrict)
	}
	secret := withVolume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "kubevirt-virt-handler-ca"}})
	token := func(p *corev1.Pod) { p.Spec.Volumes = append(p.Spec.Volumes, tokenFor("")) }
	for name, c := range map[string]struct {
		namespace string
		pod       *corev1.Pod
		refused   bool
	}{
		"a folder of the node for a guest":             {"shop", edited(launcher, folder), false},
		"a folder of the node for a worker":            {"shop", edited(worker, folder), true},
		"a folder of the node for an attachment":       {"shop", edited(attachmentPod(), folder), true},
		"a Secret for an attachment":                   {"shop", edited(attachmentPod(), secret), true},
		"a Secret for a guest":                         {"shop", edited(launcher, secret), false},
		"an identity by CSI in kube-system":            {"kube-system", edited(launcher, identity), true},
		"a token for a guest":                          {"shop", edited(launcher, token), false},
		"a token for a worker":                         {"shop", edited(worker, token), true},
		"a guest without anything in kube-system":      {"kube-system", launcher.DeepCopy(), false},
		"a folder of the node in kube-system":          {"kube-system", edited(launcher, folder), true},
		"a token in kube-system":                       {"kube-system", edited(launcher, token), true},
		"a Secret of Drydock's":                        {"kubevirt", edited(launcher, secret), true},
		"a Secret of Drydock's for a worker":           {"kubevirt", edited(worker, secret), true},
		"a worker with its certificate in kube-system": {"kube-system", workerPods(t)["an upload"], false},
	} {
		if got := answer(c.namespace, c.pod); (got != "") != c.refused {
			t.Errorf("%s: answered %q", name, got)
		}
	}
}

func certificateOf(signer string) corev1.VolumeSource {
	return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{PodCertificate: &corev1.PodCertificateProjection{SignerName: signer, KeyType: "ED25519"}}},
	}}
}

// The policy must allow the containers and volumes that webhooks of meshes, vaults and clouds add.
func TestWhatOthersPutIntoVirtControllersPods(t *testing.T) {
	policy := policytest.Load(t, controllerPolicies, "virt-controller-pods")
	token := func(audience string) corev1.VolumeSource { return tokenFor(audience).VolumeSource }
	for name, c := range map[string]struct {
		volume  corev1.VolumeSource
		refused bool
	}{
		"Istio":                       {token("istio-ca"), false},
		"Linkerd":                     {token("identity.l5d.io"), false},
		"a mesh of its own name":      {token("spire-server"), false},
		"Vault":                       {token("vault"), false},
		"roles of AWS":                {token("sts.amazonaws.com"), false},
		"identities of EKS's pods":    {token("pods.eks.amazonaws.com"), false},
		"identities of Azure":         {token("api://AzureADTokenExchange"), false},
		"pools of Google":             {token("//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q"), false},
		"pools of Google by URL":      {token("https://iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q"), false},
		"GKE's pool":                  {token("shop.svc.id.goog"), false},
		"SPIFFE by CSI":               {corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "csi.spiffe.io", ReadOnly: new(true)}}, false},
		"Secrets by CSI":              {corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io", ReadOnly: new(true)}}, false},
		"a folder of its own":         {corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}, false},
		"a volume by CSI to write":    {corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}, true},
		"a folder of the node":        {nodeFolder("/run/spire"), true},
		"kubeadm's API server":        {token("https://kubernetes.default.svc.cluster.local"), true},
		"an API server by its name":   {token("kubernetes.default.svc"), true},
		"EKS's issuer":                {token("https://oidc.eks.eu-central-1.amazonaws.com/id/1"), true},
		"GKE's issuer":                {token("https://container.googleapis.com/v1/projects/p/locations/l/clusters/c"), true},
		"AKS's issuer, written large": {token("HTTPS://c.hcp.westeurope.azmk8s.io"), true},
		"k3s's API server":            {token("k3s"), true},
		"a certificate of a mesh's":   {certificateOf("mesh.example.com/workload"), false},
		"a certificate for the API":   {certificateOf("kubernetes.io/kube-apiserver-client-pod"), true},
	} {
		for kind, pod := range map[string]*corev1.Pod{
			"launcher": launchers(t)["the launcher pod of minimal-emulated"], "worker": workerPods(t)["a blank disk"], "attachment": attachmentPod(),
		} {
			pod.TypeMeta, pod.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "shop"
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: c.volume})
			mountBeside(pod)
			if got := policy.Answer(t, policytest.Write{By: virtController, Resource: "pods", New: pod}); (got != "") != c.refused {
				t.Errorf("%s in a %s pod: answered %q", name, kind, got)
			}
		}
	}
}

// A process that has a folder of the node open could pass it to another container's process.
func TestWhatRunsBesideAFolderOfTheNode(t *testing.T) {
	policy := policytest.Load(t, controllerPolicies, "virt-controller-pods")
	launcher := launchers(t)["the launcher pod of minimal-emulated"]
	withVolume(nodeFolder("/var/disks"))(launcher)
	launcher.Spec.SecurityContext.SupplementalGroupsPolicy = new(corev1.SupplementalGroupsPolicyStrict)
	launcher.TypeMeta, launcher.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "shop"
	proxy := func(edit func(*corev1.Container)) corev1.Container {
		c := corev1.Container{Name: "istio-proxy", Image: "proxy", SecurityContext: &corev1.SecurityContext{
			RunAsUser: new(int64(1337)), RunAsGroup: new(int64(1337)), AllowPrivilegeEscalation: new(false),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}}
		if edit != nil {
			edit(&c)
		}
		return c
	}
	beside := func(edit func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, proxy(edit)) }
	}
	root := func(c *corev1.Container) {
		c.SecurityContext.RunAsUser, c.SecurityContext.RunAsNonRoot = new(int64(0)), new(false)
	}
	for name, c := range map[string]struct {
		edit    func(*corev1.Pod)
		refused bool
	}{
		"nothing":                     {func(*corev1.Pod) {}, false},
		"a proxy":                     {beside(nil), false},
		"an init container of a mesh": {func(p *corev1.Pod) { p.Spec.InitContainers = inAMesh(p).Spec.InitContainers }, false},
		"one that runs on": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{proxy(func(c *corev1.Container) {
				root(c)
				c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
			})}
		}, true},
		"root":                 {beside(root), true},
		"root's group":         {beside(func(c *corev1.Container) { c.SecurityContext.RunAsGroup = new(int64(0)) }), true},
		"no security context":  {beside(func(c *corev1.Container) { c.SecurityContext = nil }), true},
		"programs of root's":   {beside(func(c *corev1.Container) { c.SecurityContext.AllowPrivilegeEscalation = nil }), true},
		"capabilities":         {beside(func(c *corev1.Container) { c.SecurityContext.Capabilities = nil }), true},
		"processes in one":     {func(p *corev1.Pod) { p.Spec.ShareProcessNamespace = new(true) }, true},
		"the groups of images": {func(p *corev1.Pod) { p.Spec.SecurityContext.SupplementalGroupsPolicy = nil }, true},
	} {
		if got := policy.Answer(t, policytest.Write{By: virtController, Resource: "pods", New: edited(launcher, c.edit)}); (got != "") != c.refused {
			t.Errorf("%s: answered %q", name, got)
		}
	}
}

// The policy must allow exactly the SELinux types that admission of the KubeVirt object accepts without a warning.
func TestWhichSELinuxTypesLaunchersMayHave(t *testing.T) {
	policy := policytest.Load(t, controllerPolicies, "virt-controller-pods")
	launcher := launchers(t)["the launcher pod of minimal-emulated"]
	launcher.TypeMeta, launcher.Namespace = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, "shop"
	for kind, let := range map[string]bool{
		"container_t": true, "container_init_t": true, "container_kvm_t": true, "container_engine_t": true, "virt_launcher.process": true,
		"spc_t": false, "unconfined_t": false, "container_runtime_t": false, "process": false,
	} {
		launcher.Spec.SecurityContext.SELinuxOptions = selinux.LauncherOptions(kind)
		got := policy.Answer(t, policytest.Write{By: virtController, Resource: "pods", New: launcher.DeepCopy()})
		if (got == "") != let || selinux.ForContainers(kind) != let {
			t.Errorf("%s: answered %q; it is for containers: %v", kind, got, selinux.ForContainers(kind))
		}
	}
}

func TestVirtControllerTouchesNoOtherPods(t *testing.T) {
	policy := policytest.Load(t, controllerPolicies, "virt-controller-pods")
	maintained := plainPod()
	maintained.Labels = map[string]string{v1.AppLabel: layout.MaintenanceApp, layout.MaintenanceForLabel: "web"}
	unlabeled := attachmentPod()
	unlabeled.Name, unlabeled.Labels = layout.LauncherPrefix+"web-12345", nil
	annotate := func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }
	image := func(p *corev1.Pod) { p.Spec.Containers[0].Image = "evil" }
	relabel := func(p *corev1.Pod) { p.Labels = map[string]string{v1.AppLabel: layout.LauncherApp} }
	for name, c := range map[string]struct {
		by     user.Info
		pod    *corev1.Pod
		change func(*corev1.Pod)
		want   string
	}{
		"a tenant's pod": {virtController, plainPod(), annotate, "only Drydock's pods"},
		"a tenant's pod is made one of Drydock's":   {virtController, plainPod(), relabel, "only Drydock's pods"},
		"a tenant's pod is deleted":                 {virtController, plainPod(), nil, "only Drydock's pods"},
		"another image of an attachment pod":        {virtController, attachmentPod(), image, "may not change"},
		"a maintenance pod's gate":                  {virtController, maintained, annotate, ""},
		"a maintenance pod becomes a launcher pod":  {virtController, maintained, relabel, "may not change"},
		"a maintenance pod is deleted":              {virtController, maintained, nil, ""},
		"a launcher pod that has lost its labels":   {virtController, unlabeled, nil, ""},
		"an attachment pod":                         {virtController, attachmentPod(), annotate, ""},
		"a tenant's pod by its author":              {tenant, plainPod(), annotate, ""},
		"a tenant's pod by its author, and deleted": {tenant, plainPod(), nil, ""},
	} {
		write := policytest.Write{By: c.by, Resource: "pods", Old: c.pod}
		if c.change != nil {
			write.New = edited(c.pod, c.change)
		}
		if got := policy.Answer(t, write); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: answered %q, want %q", name, got, c.want)
		}
	}
}

func TestVirtControllerMakesSecretsAndServicesOfWorkersOnly(t *testing.T) {
	policy := policytest.Load(t, controllerPolicies, "virt-controller-secrets")
	worker := workerPods(t)["an upload"]
	secret := func(edit func(*corev1.Secret)) *corev1.Secret {
		s := workerpod.Secret(worker, "cdi-upload-disk-11", map[string][]byte{"tls.crt": {1}, "tls.key": {1}, "ca.crt": {1}})
		s.APIVersion, s.Kind = "v1", "Secret"
		edit(s)
		return s
	}
	service := func(edit func(*corev1.Service)) *corev1.Service {
		s := workerpod.Service(worker)
		s.APIVersion, s.Kind = "v1", "Service"
		edit(s)
		return s
	}
	made, users := secret(func(*corev1.Secret) {}), secret(func(s *corev1.Secret) { s.Labels = nil })
	for name, c := range map[string]struct {
		write policytest.Write
		want  string
	}{
		"a worker's certificate":            {policytest.Write{Resource: "secrets", New: made}, ""},
		"a worker's certificate is deleted": {policytest.Write{Resource: "secrets", Old: made}, ""},
		"a tenant's Secret is deleted":      {policytest.Write{Resource: "secrets", Old: users}, "only the Secrets and Services of workers"},
		"a Secret without a worker":         {policytest.Write{Resource: "secrets", New: users}, "only the Secrets and Services of workers"},
		"a Secret is changed":               {policytest.Write{Resource: "secrets", Old: made, New: made}, "only the Secrets and Services of workers"},
		"a token of a service account": {policytest.Write{Resource: "secrets", New: secret(func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeServiceAccountToken
		})}, "only Secrets with a worker's certificate"},
		"a bootstrap token": {policytest.Write{Resource: "secrets", New: secret(func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeBootstrapToken
		})}, "only Secrets with a worker's certificate"},
		"anything else in a Secret": {policytest.Write{Resource: "secrets", New: secret(func(s *corev1.Secret) {
			s.Data["a"] = nil
		})}, "only Secrets with a worker's certificate"},
		"a worker's Service":            {policytest.Write{Resource: "services", New: service(func(*corev1.Service) {})}, ""},
		"a worker's Service is deleted": {policytest.Write{Resource: "services", Old: service(func(*corev1.Service) {})}, ""},
		"a tenant's Service is deleted": {policytest.Write{Resource: "services", Old: service(func(s *corev1.Service) { s.Labels = nil })}, "only the Secrets and Services of workers"},
		"a Service that takes an address": {policytest.Write{Resource: "services", New: service(func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"10.0.0.1"}
		})}, "only Services that lead to a worker"},
		"a Service that leads elsewhere": {policytest.Write{Resource: "services", New: service(func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{"app": "db"}
		})}, "only Services that lead to a worker"},
	} {
		c.write.By = virtController
		if got := policy.Answer(t, c.write); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: answered %q, want %q", name, got, c.want)
		}
	}
}
