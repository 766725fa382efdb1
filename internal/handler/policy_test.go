package handler

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	sigyaml "sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/contracts/nodeprobe"
	"drydock.dev/drydock/internal/handler/node"
	"drydock.dev/drydock/internal/policytest"
	"drydock.dev/drydock/internal/rules/cluster/clusterconfig"
	"drydock.dev/drydock/internal/rules/cluster/nodecert"
)

// These tests judge writes by config/rbac/handler-policy.yaml, with the API server's own code: virt-handler's writes
// must pass, and those of an attacker with its token must not.

const policies = "../../config/rbac/handler-policy.yaml"

// handlerOn is virt-handler as the API server knows it from the token of its pod on a node.
func handlerOn(nodes ...string) *user.DefaultInfo {
	info := &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-handler"}
	if len(nodes) > 0 {
		info.Extra = map[string][]string{"authentication.kubernetes.io/node-name": nodes}
	}
	return info
}

type write struct {
	by     user.Info
	change func(client.Object)
	// refused is a part of the refusal; empty when the write passes.
	refused string
}

func TestVirtHandlerReportsTheMachinesOfItsNodeAndNoMore(t *testing.T) {
	instance := &v1.VirtualMachineInstance{TypeMeta: metav1.TypeMeta{APIVersion: v1.SchemeGroupVersion.String(), Kind: "VirtualMachineInstance"}}
	instance.Namespace, instance.Name = "shop", "web"
	instance.Labels = map[string]string{v1.NodeNameLabel: "node1", v1.MigrationTargetNodeNameLabel: "node3", "app": "web"}
	instance.Finalizers = []string{v1.VirtualMachineInstanceFinalizer}
	instance.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root"}}
	instance.Spec.Volumes = []v1.Volume{{Name: "root"}}
	instance.Status.Phase = v1.Scheduled

	runs := func(o client.Object) { o.(*v1.VirtualMachineInstance).Status.Phase = v1.Running }
	change := func(f func(*v1.VirtualMachineInstance)) func(client.Object) {
		return func(o client.Object) { f(o.(*v1.VirtualMachineInstance)) }
	}
	judge(t, "virt-handler-virtualmachineinstances", "virtualmachineinstances", instance, map[string]write{
		"a status on its own node": {by: handlerOn("node1"), change: runs},
		"a status on another node": {by: handlerOn("node2"), change: runs, refused: "of its own node"},
		// The policy of the status judges its content (internal/rules/vmi/vmistatus).
		"a status on the node that it migrates to": {by: handlerOn("node3"), change: runs},
		"a machine taken from where it runs": {by: handlerOn("node3"), refused: "metadata",
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Labels[v1.NodeNameLabel] = "node3" })},
		"a token that is bound to no pod": {by: handlerOn(), change: runs, refused: "of its own node"},
		"a machine drawn to its own node": {by: handlerOn("node2"), refused: "of its own node",
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Labels[v1.NodeNameLabel] = "node2" })},
		"a machine sent away": {by: handlerOn("node1"), refused: "metadata",
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Labels[v1.NodeNameLabel] = "node2" })},
		"another disk": {by: handlerOn("node1"), refused: "spec",
			change: change(func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Volumes[0].DataVolume = &v1.DataVolumeSource{Name: "somebody-elses"}
			})},
		"an annotation": {by: handlerOn("node1"), refused: "metadata",
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Annotations = map[string]string{"a": "b"} })},
		"the finalizer": {by: handlerOn("node1"), refused: "metadata",
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Finalizers = nil })},
		"virt-controller's writes": {
			by:     &user.DefaultInfo{Name: "system:serviceaccount:kubevirt:kubevirt-controller"},
			change: change(func(vmi *v1.VirtualMachineInstance) { vmi.Labels[v1.NodeNameLabel] = "node2" })},
	})
}

// CVE-2023-26484: an attacker with virt-handler's token could change any node, and so bring any pod of the
// cluster to his own.
func TestCVE202326484VirtHandlerLabelsItsNodeAndNoMore(t *testing.T) {
	object := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	object.Name = "node1"
	object.Labels = map[string]string{"zone": "a", v1.CPUModelLabel + "Conroe": "true"}

	probe := nodeprobe.Result{CPUModels: []string{"Haswell", "qemu64"}, HostModel: "Haswell"}
	labeled := func(o client.Object) {
		labels := o.GetLabels()
		delete(labels, v1.CPUModelLabel+"Conroe")
		for name, value := range node.Labels(probe) {
			labels[name] = value
		}
	}
	judge(t, "virt-handler-nodes", "nodes", object, map[string]write{
		"what its node can do": {by: handlerOn("node1"), change: labeled},
		"that its node has SELinux": {by: handlerOn("node1"), change: func(o client.Object) {
			o.GetLabels()[layout.SELinuxLabel] = layout.SELinuxEnabled
		}},
		"that its launchers may have userfaultfd": {by: handlerOn("node1"), change: func(o client.Object) {
			o.GetLabels()[layout.PostCopyLabel] = layout.PostCopyUsable
		}},
		"what another node can do":       {by: handlerOn("node2"), change: labeled, refused: "its own node"},
		"a label that places pods":       {by: handlerOn("node1"), change: func(o client.Object) { o.GetLabels()["zone"] = "b" }, refused: "labels that say"},
		"another label of ours":          {by: handlerOn("node1"), change: func(o client.Object) { o.GetLabels()["drydock.dev/other"] = "b" }, refused: "labels that say"},
		"a label taken away":             {by: handlerOn("node1"), change: func(o client.Object) { delete(o.GetLabels(), "zone") }, refused: "labels that say"},
		"a label that was not there":     {by: handlerOn("node1"), change: func(o client.Object) { o.GetLabels()["trusted"] = "true" }, refused: "labels that say"},
		"taints":                         {by: handlerOn("node1"), change: func(o client.Object) { o.(*corev1.Node).Spec.Unschedulable = true }, refused: "nothing of a node but labels"},
		"an annotation":                  {by: handlerOn("node1"), change: func(o client.Object) { o.SetAnnotations(map[string]string{"a": "b"}) }, refused: "nothing of a node but labels"},
		"the writes of an administrator": {by: &user.DefaultInfo{Name: "admin"}, change: func(o client.Object) { o.GetLabels()["zone"] = "b" }},
	})
}

// People and machines act on events: an attacker with virt-handler's token must not publish them in anybody's
// name.
func TestVirtHandlersEventsAreItsOwn(t *testing.T) {
	event := func(change func(*eventsv1.Event)) *eventsv1.Event {
		e := &eventsv1.Event{
			TypeMeta:            metav1.TypeMeta{APIVersion: eventsv1.SchemeGroupVersion.String(), Kind: "Event"},
			ObjectMeta:          metav1.ObjectMeta{Namespace: "shop", Name: "web.1"},
			ReportingController: "virt-handler", ReportingInstance: "virt-handler-node1", Reason: "Started", Type: corev1.EventTypeNormal,
			Regarding: corev1.ObjectReference{APIVersion: v1.SchemeGroupVersion.String(), Kind: "VirtualMachineInstance", Namespace: "shop", Name: "web"},
		}
		change(e)
		return e
	}
	asIs := func(*eventsv1.Event) {}
	of := func(apiVersion, kind, namespace, name string) func(*eventsv1.Event) {
		return func(e *eventsv1.Event) {
			e.Regarding = corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: namespace, Name: name}
		}
	}
	by := func(reporter string) func(*eventsv1.Event) {
		return func(e *eventsv1.Event) { e.ReportingController = reporter }
	}
	policy := policytest.Load(t, policies, "virt-handler-events")
	for what, test := range map[string]struct {
		by       user.Info
		old, new *eventsv1.Event
		refused  string
	}{
		"of a guest":                       {by: handlerOn("node1"), new: event(asIs)},
		"the same once more":               {by: handlerOn("node1"), old: event(asIs), new: event(asIs)},
		"of its node":                      {by: handlerOn("node1"), new: event(of("v1", "Node", "", "node1"))},
		"of another node":                  {by: handlerOn("node1"), new: event(of("v1", "Node", "", "node2")), refused: "its own node"},
		"of a node, bound to no pod":       {by: handlerOn(), new: event(of("v1", "Node", "", "node1")), refused: "its own node"},
		"of a pod":                         {by: handlerOn("node1"), new: event(of("v1", "Pod", "shop", "web")), refused: "only tell of"},
		"of a guest elsewhere":             {by: handlerOn("node1"), new: event(of(v1.SchemeGroupVersion.String(), "VirtualMachineInstance", "other", "web")), refused: "only tell of"},
		"of another group's kind":          {by: handlerOn("node1"), new: event(of("example.com/v1", "VirtualMachineInstance", "shop", "web")), refused: "only tell of"},
		"of nothing":                       {by: handlerOn("node1"), new: event(of("", "", "", "")), refused: "only tell of"},
		"in virt-controller's name":        {by: handlerOn("node1"), new: event(by("virtualmachine-controller")), refused: "no events but its own"},
		"over another's":                   {by: handlerOn("node1"), old: event(by("kubelet")), new: event(asIs), refused: "no events but its own"},
		"its own, given to another":        {by: handlerOn("node1"), old: event(asIs), new: event(by("kubelet")), refused: "no events but its own"},
		"a kubelet's, which is not judged": {by: &user.DefaultInfo{Name: "system:node:node1"}, new: event(by("kubelet"))},
	} {
		w := policytest.Write{By: test.by, Resource: "events", New: test.new}
		if test.old != nil {
			w.Old = test.old
		}
		if got := policy.Answer(t, w); (got == "") != (test.refused == "") || !strings.Contains(got, test.refused) {
			t.Errorf("%s: answered %q, want %q", what, got, test.refused)
		}
	}
}

// The policies judge only the writes that RBAC allows.
func TestCVE202326484VirtHandlersRolesAreShort(t *testing.T) {
	data, err := os.ReadFile("../../config/rbac/handler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]string{
		"kubevirt.io/virtualmachineinstances": "get list patch watch",
		"/pods":                               "get list watch",
		"/persistentvolumeclaims":             "get",
		"/persistentvolumes":                  "get",
		"/nodes":                              "get patch",
		"events.k8s.io/events":                "create patch update",
		// The settings, which contain no secret: the only object may be in any namespace (decision 545).
		"kubevirt.io/kubevirts": "get list watch",
		// The policy virt-handler-certificates permits only its own request, from one signer.
		"certificates.k8s.io/certificatesigningrequests": "create delete get watch",
		// Who may read metrics: two questions, which change nothing.
		"authentication.k8s.io/tokenreviews":        "create",
		"authorization.k8s.io/subjectaccessreviews": "create",
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := sigyaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				what := strings.Join(rule.APIGroups, "|") + "/" + resource
				verbs := slices.Sorted(slices.Values(rule.Verbs))
				if got := strings.Join(verbs, " "); allowed[what] != got {
					t.Errorf("virt-handler may %q %s in all namespaces, want %q", got, what, allowed[what])
				}
				delete(allowed, what)
			}
		}
	}
	if len(allowed) > 0 {
		t.Errorf("the manifest does not have %v", allowed)
	}
}

// An attacked node must not get another node's certificate, nor one of another kind.
func TestVirtHandlerAsksForItsOwnCertificateAndNoMore(t *testing.T) {
	policy := policytest.Load(t, policies, "virt-handler-certificates")
	request := func(node string, change func(*certificatesv1.CertificateSigningRequest)) *certificatesv1.CertificateSigningRequest {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		made, err := nodecert.New(node, key, nodecert.ServerAndClient)
		if err != nil {
			t.Fatal(err)
		}
		change(made)
		return made
	}
	asIs := func(*certificatesv1.CertificateSigningRequest) {}
	signer := func(name string) func(*certificatesv1.CertificateSigningRequest) {
		return func(r *certificatesv1.CertificateSigningRequest) { r.Spec.SignerName = name }
	}
	foreign := request("node1", func(r *certificatesv1.CertificateSigningRequest) {
		r.Name, r.Spec.SignerName = "csr-1", "example.com/signer"
	})
	admin := &user.DefaultInfo{Name: "admin", Groups: []string{"system:masters"}}
	collector := &user.DefaultInfo{Name: "system:serviceaccount:kube-system:certificate-controller"}
	for what, test := range map[string]struct {
		by       user.Info
		old, new *certificatesv1.CertificateSigningRequest
		refused  string
	}{
		"its own":                         {by: handlerOn("node1"), new: request("node1", asIs)},
		"another node's":                  {by: handlerOn("node2"), new: request("node1", asIs), refused: "of its own node"},
		"a token that is bound to no pod": {by: handlerOn(), new: request("node1", asIs), refused: "of its own node"},
		"a generated name": {by: handlerOn("node1"), refused: "of its own node", new: request("node1", func(r *certificatesv1.CertificateSigningRequest) {
			r.Name, r.GenerateName = "", nodecert.RequestName("node1")
		})},
		"a kubelet's certificate":      {by: handlerOn("node1"), new: request("node1", signer(certificatesv1.KubeAPIServerClientKubeletSignerName)), refused: "no other signer"},
		"a tenant's":                   {by: &user.DefaultInfo{Name: "tenant"}, new: request("node1", asIs), refused: "only virt-handler"},
		"an administrator's":           {by: admin, new: request("node1", asIs), refused: "only virt-handler"},
		"a name of ours that is taken": {by: &user.DefaultInfo{Name: "tenant"}, new: request("node1", signer("example.com/signer")), refused: "only virt-handler"},
		"somebody else's request":      {by: &user.DefaultInfo{Name: "tenant"}, new: foreign},
		"its own, deleted":             {by: handlerOn("node1"), old: request("node1", asIs)},
		"another node's, deleted":      {by: handlerOn("node1"), old: request("node2", asIs), refused: "of its own node"},
		"somebody else's, deleted":     {by: handlerOn("node1"), old: foreign, refused: "of its own node"},
		"deleted by the cleaner":       {by: collector, old: request("node1", asIs)},
		"deleted by an administrator":  {by: admin, old: request("node1", asIs)},
	} {
		w := policytest.Write{By: test.by, Resource: "certificatesigningrequests"}
		if test.old != nil {
			w.Old = test.old
		}
		if test.new != nil {
			w.New = test.new
		}
		if got := policy.Answer(t, w); (got == "") != (test.refused == "") || !strings.Contains(got, test.refused) {
			t.Errorf("%s: answered %q, want %q", what, got, test.refused)
		}
	}
}

// The CA key of virt-handlers makes its owner any node's; virt-api's client key makes him virt-api.
func TestVirtHandlerReadsNoSecret(t *testing.T) {
	roles, bound := handlersRoles(t)
	if len(bound) < 2 {
		t.Fatalf("virt-handler has the roles %v", bound)
	}
	for _, name := range bound {
		role, known := roles[name]
		if !known {
			t.Errorf("virt-handler has the %s, which is not in config/rbac", name)
		}
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				core := slices.Contains(rule.APIGroups, "") || slices.Contains(rule.APIGroups, "*")
				if core && (resource == "*" || strings.HasPrefix(resource, "secrets")) || strings.HasPrefix(resource, "serviceaccounts") {
					t.Errorf("by %s virt-handler may %v %s", name, rule.Verbs, resource)
				}
			}
		}
	}
}

// handlersRoles returns the roles of config/rbac by kind and name, and those to which virt-handler is bound, also as a
// member of a group.
func handlersRoles(t *testing.T) (roles map[string]rbacv1.ClusterRole, bound []string) {
	t.Helper()
	files, err := filepath.Glob("../../config/rbac/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	roles = map[string]rbacv1.ClusterRole{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for document := range strings.SplitSeq(string(data), "\n---\n") {
			// Both kinds of role have rules, and both kinds of binding have subjects.
			var role rbacv1.ClusterRole
			var binding rbacv1.ClusterRoleBinding
			if err := errors.Join(sigyaml.Unmarshal([]byte(document), &role), sigyaml.Unmarshal([]byte(document), &binding)); err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(role.Kind, "Role") {
				roles[role.Kind+" "+role.Name] = role
			}
			for _, subject := range binding.Subjects {
				if subject.Kind != "ServiceAccount" || subject.Name == clusterconfig.HandlerServiceAccount {
					bound = append(bound, binding.RoleRef.Kind+" "+binding.RoleRef.Name)
				}
			}
		}
	}
	return roles, bound
}

func judge(t *testing.T, name, resource string, old client.Object, writes map[string]write) {
	t.Helper()
	policy := policytest.Load(t, policies, name)
	for what, w := range writes {
		changed := old.DeepCopyObject().(client.Object)
		w.change(changed)
		got := policy.Answer(t, policytest.Write{By: w.by, Resource: resource, Old: old, New: changed})
		if (got == "") != (w.refused == "") || !strings.Contains(got, w.refused) {
			t.Errorf("%s: answered %q, want %q", what, got, w.refused)
		}
	}
}
