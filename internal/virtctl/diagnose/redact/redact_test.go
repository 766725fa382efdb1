package redact

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1 "kubevirt.io/api/instancetype/v1beta1"
	migrationsv1 "kubevirt.io/api/migrations/v1alpha1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/contracts/layout"
)

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	var o map[string]any
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

func encoded(t *testing.T, o any) string {
	t.Helper()
	text, err := yaml.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const secret = "Tr0ub4dor-und-3"

// hostile has places in which somebody may have put a secret; %s is the secret.
var hostile = map[string]struct{ kind, object string }{
	"cloud-init": {"virtualmachines.kubevirt.io",
		"spec: {template: {spec: {volumes: [{name: c, cloudInitNoCloud: {userData: %q, networkData: %[1]q, secretRef: {name: keys}}}]}}}"},
	"cloud-init of an instance": {"virtualmachineinstances.kubevirt.io", "spec: {volumes: [{name: c, cloudInitConfigDrive: {userData: %q}}]}"},
	"sysprep written in place":  {"virtualmachineinstances.kubevirt.io", "spec: {volumes: [{name: c, sysprep: {answers: %q, secret: {name: s, key: %[1]q}}}]}"},
	"a replica set's template": {"virtualmachineinstancereplicasets.kubevirt.io",
		"spec: {template: {spec: {volumes: [{name: c, cloudInitNoCloud: {userData: %q}}]}}}"},
	"the copy of a VM in a snapshot": {"virtualmachinesnapshotcontents.snapshot.kubevirt.io",
		"spec: {source: {virtualMachine: {metadata: {annotations: {a: %q}}, spec: {template: {spec: {volumes: [{cloudInitNoCloud: {userData: %[1]q}}]}}}}}}"},
	"the patches of a clone":        {"virtualmachineclones.clone.kubevirt.io", `spec: {patches: ['{"op": "add", "path": "/spec/x", "value": "%s"}']}`},
	"the patches of a restore":      {"virtualmachinerestores.snapshot.kubevirt.io", `spec: {patches: ['{"op": "add", "path": "/spec/x", "value": "%s"}']}`},
	"a revision":                    {"controllerrevisions.apps", "data: {spec: {template: {spec: {volumes: [{cloudInitNoCloud: {userData: %q}}]}}}}"},
	"a revision with allowed words": {"controllerrevisions.apps", "data: {metadata: {name: %q}, status: {phase: %[1]q}}"},
	"the last applied manifest":     {"virtualmachines.kubevirt.io", `metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"userData": "%s"}'}}`},
	"an annotation of a known domain": {"virtualmachines.kubevirt.io",
		"metadata: {annotations: {kubevirt.io/%s: x, kubevirt.io/cloud-init: %[1]q}, managedFields: [{manager: %[1]q}]}"},
	"the name of an unknown field":     {"virtualmachines.kubevirt.io", "spec: {%s: 1}"},
	"a label":                          {"pods", "metadata: {labels: {team: %q}}"},
	"a label's key":                    {"pods", "metadata: {labels: {'%s=x': x}}"},
	"a node selector":                  {"pods", "spec: {nodeSelector: {team: %q}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: team, operator: In, values: [%[1]q]}]}]}}}}"},
	"the environment of a container":   {"pods", "spec: {containers: [{name: c, env: [{name: PASSWORD, value: %q}], command: [%[1]q], args: [%[1]q]}]}"},
	"the command of a probe":           {"pods", "spec: {containers: [{name: c, livenessProbe: {exec: {command: [%q]}, httpGet: {httpHeaders: [{name: x, value: %[1]q}]}}}]}"},
	"the environment of a workload":    {"deployments.apps", "spec: {template: {spec: {containers: [{name: c, env: [{name: T, value: %q}]}]}}}"},
	"the address of an import":         {"datavolumes.cdi.kubevirt.io", "spec: {source: {http: {url: 'https://ann:%s@host.example:8443/%[1]s?token=%[1]s#%[1]s', extraHeaders: ['Authorization: %[1]s']}}}"},
	"an address that is none":          {"datavolumes.cdi.kubevirt.io", "spec: {source: {http: {url: 'https://ann:%s/x@host'}, s3: {url: %[1]q}}}"},
	"an address in a message":          {"events", "message: 'importing https://ann:%s@host.example/disk?key=%[1]s failed'"},
	"a guest's kernel arguments":       {"virtualmachineinstances.kubevirt.io", "spec: {domain: {firmware: {kernelBoot: {kernelArgs: %q}, serial: %[1]q}, chassis: {asset: %[1]q}}}"},
	"an object instead of a text":      {"virtualmachineinstances.kubevirt.io", "spec: {hostname: {a: %q}, domain: {machine: {type: [[%[1]q]]}}}"},
	"a text instead of an object":      {"virtualmachineinstances.kubevirt.io", "spec: {domain: %q}"},
	"a text instead of a quantity":     {"virtualmachineinstances.kubevirt.io", "spec: {domain: {memory: {guest: %q}}}"},
	"an unknown field":                 {"virtualmachineinstances.kubevirt.io", "spec: {domain: {devices: {disks: [{name: d, password: %q, disk: {bus: virtio, key: %[1]q}}]}}}"},
	"an unknown kind":                  {"secrets", "data: {password: %q}\nstringData: {x: %[1]q}\nspec: {name: %[1]q}"},
	"a ConfigMap":                      {"configmaps", "data: {sysprep: %q}"},
	"the serial of a disk":             {"virtualmachineinstances.kubevirt.io", "spec: {domain: {devices: {disks: [{name: d, serial: %q}]}}}"},
	"DHCP options":                     {"virtualmachineinstances.kubevirt.io", "spec: {domain: {devices: {interfaces: [{name: n, dhcpOptions: {privateOptions: [{option: 240, value: %q}]}}]}}}"},
	"the parameters of a class":        {"storageclasses.storage.k8s.io", "parameters: {password: %q}"},
	"the attributes of a volume":       {"persistentvolumes", "spec: {csi: {driver: d, volumeAttributes: {key: %q}}}"},
	"a patch of Drydock's own":         {"kubevirts.kubevirt.io", "spec: {customizeComponents: {patches: [{patch: %q}], flags: {api: {token: %[1]q}}}}"},
	"a message that quotes cloud-init": {"virtualmachines.kubevirt.io", "spec: {template: {spec: {volumes: [{cloudInitNoCloud: {userData: \"#cloud-config\\npassword: %s\\n\"}}]}}}\nstatus: {conditions: [{type: Failure, message: 'userData: Invalid value: %[1]s'}]}"},
	"a message that comes first":       {"virtualmachines.kubevirt.io", "metadata: {annotations: {note: %q}}\nspec: {template: {metadata: {annotations: {z: %[1]q}}}}\nstatus: {conditions: [{message: 'has %[1]s'}]}"},
	"a very long value":                {"pods", "spec: {nodeName: '" + strings.Repeat("x", 300) + "%s'}"},
}

func TestASecretIsWithheldWhereverItIs(t *testing.T) {
	for name, c := range hostile {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf(c.object, secret)
			if !strings.Contains(text, secret) {
				t.Fatalf("the secret is not in %s", text)
			}
			out := encoded(t, New().Object(c.kind, parsed(t, text)))
			if strings.Contains(out, secret) {
				t.Errorf("the secret is left in\n%s", out)
			}
			knows := New()
			knows.Keep("virtualmachines.kubevirt.io", map[string]any{"spec": map[string]any{"x": secret}})
			if out := encoded(t, knows.Object(c.kind, parsed(t, text))); strings.Contains(out, secret) {
				t.Errorf("afterwards, the secret is left in\n%s", out)
			}
		})
	}
}

func TestWhatAMaintainerNeedsIsThere(t *testing.T) {
	o := `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: web
  namespace: lab
  labels: {kubevirt.io/nodeName: node1, team: blue}
  annotations: {kubevirt.io/vm-generation: "3", note: mine}
  managedFields: [{manager: kubectl}]
spec:
  nodeSelector: {kubernetes.io/hostname: node1}
  domain:
    cpu: {cores: 2}
    memory: {guest: 1Gi}
    devices:
      disks: [{name: root, disk: {bus: virtio}}]
      interfaces: [{name: default, masquerade: {}}]
  volumes:
  - {name: root, persistentVolumeClaim: {claimName: root-claim}}
  - {name: init, cloudInitNoCloud: {userData: "#cloud-config", secretRef: {name: keys}}}
status:
  phase: Running
  activePods: {8c4c: node1}
  conditions: [{type: Ready, status: "False", reason: PausedIOError, message: "disk root: no space left"}]
`
	want := `
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata:
  name: web
  namespace: lab
  labels: {kubevirt.io/nodeName: node1, (withheld): (withheld)}
  annotations: {kubevirt.io/vm-generation: "3", (withheld): (withheld)}
spec:
  nodeSelector: {kubernetes.io/hostname: node1}
  domain:
    cpu: {cores: 2}
    memory: {guest: 1Gi}
    devices:
      disks: [{name: root, disk: {bus: virtio}}]
      interfaces: [{name: default, masquerade: {}}]
  volumes:
  - {name: root, persistentVolumeClaim: {claimName: root-claim}}
  - {name: init, cloudInitNoCloud: {userData: (withheld), secretRef: {name: keys}}}
status:
  phase: Running
  activePods: {8c4c: node1}
  conditions: [{type: Ready, status: "False", reason: PausedIOError, message: "disk root: no space left"}]
`
	if diff := cmp.Diff(parsed(t, want), New().Object("virtualmachineinstances.kubevirt.io", parsed(t, o))); diff != "" {
		t.Error(diff)
	}
}

func TestTexts(t *testing.T) {
	key := strings.Repeat("Ab3", 20)
	for name, c := range map[string]struct{ text, want string }{
		"an ordinary message":           {"0/2 nodes are available: 1 Insufficient memory", "0/2 nodes are available: 1 Insufficient memory"},
		"an address":                    {`Get "https://10.0.0.1:6443/api": refused`, `Get "https://10.0.0.1:6443/…": refused`},
		"a host alone":                  {"docker://registry.example", "docker://registry.example"},
		"an image is no address":        {"Failed to pull image registry.example/vm:1", "Failed to pull image registry.example/vm:1"},
		"a user and a password":         {"http://a:b@h/x", "http://h/…"},
		"a password with a slash":       {"http://a:b/c@h", Withheld},
		"an address of IPv6":            {"http://[fe80::1]:80/x", "http://[fe80::1]:80/…"},
		"a key":                         {"token " + key + " refused", "token " + Withheld + " refused"},
		"a digest":                      {"sha256:" + strings.Repeat("0a", 32), "sha256:" + strings.Repeat("0a", 32)},
		"a long name":                   {layout.PodName(layout.LauncherPrefix, strings.Repeat("a1", 30), "-abcde"), layout.PodName(layout.LauncherPrefix, strings.Repeat("a1", 30), "-abcde")},
		"what a terminal would obey":    {"\x1b[2Jred\r\u202eleft", " [2Jred  left"},
		"lines stay":                    {"one\n\ttwo\n", "one\n\ttwo\n"},
		"what is no text":               {"\xff", "\ufffd"},
		"what was withheld":             {"userData: " + secret, "userData: " + Withheld},
		"what was withheld, in base 64": {base64.StdEncoding.EncodeToString([]byte("user: ann\npassword: " + secret)), Withheld + "="},
	} {
		t.Run(name, func(t *testing.T) {
			r := New()
			r.Object("virtualmachines.kubevirt.io", map[string]any{"spec": map[string]any{
				"text": "first\npassword: " + secret + "\n", "userDataBase64": base64.StdEncoding.EncodeToString([]byte("user: ann\npassword: " + secret)),
			}})
			if got := r.Text(c.text); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// TestRulesNameFieldsThatExist finds typing errors: a field that no API type has is allowed in vain.
func TestRulesNameFieldsThatExist(t *testing.T) {
	for kind, of := range map[string]any{
		"pods": corev1.Pod{}, "nodes": corev1.Node{}, "persistentvolumeclaims": corev1.PersistentVolumeClaim{}, "persistentvolumes": corev1.PersistentVolume{},
		"events": corev1.Event{}, "limitranges": corev1.LimitRange{},
		"virtualmachines.kubevirt.io": v1.VirtualMachine{}, "virtualmachineinstances.kubevirt.io": v1.VirtualMachineInstance{},
		"virtualmachineinstancereplicasets.kubevirt.io": v1.VirtualMachineInstanceReplicaSet{},
		"virtualmachineinstancemigrations.kubevirt.io":  v1.VirtualMachineInstanceMigration{}, "kubevirts.kubevirt.io": v1.KubeVirt{},
		"migrationpolicies.migrations.kubevirt.io":             migrationsv1.MigrationPolicy{},
		"virtualmachinesnapshots.snapshot.kubevirt.io":         snapshotv1.VirtualMachineSnapshot{},
		"virtualmachinesnapshotcontents.snapshot.kubevirt.io":  snapshotv1.VirtualMachineSnapshotContent{},
		"virtualmachinerestores.snapshot.kubevirt.io":          snapshotv1.VirtualMachineRestore{},
		"virtualmachineclones.clone.kubevirt.io":               clonev1.VirtualMachineClone{},
		"virtualmachineinstancetypes.instancetype.kubevirt.io": instancetypev1.VirtualMachineInstancetype{},
		"virtualmachinepreferences.instancetype.kubevirt.io":   instancetypev1.VirtualMachinePreference{},
		"datavolumes.cdi.kubevirt.io":                          cdiv1.DataVolume{}, "datasources.cdi.kubevirt.io": cdiv1.DataSource{},
		"storageprofiles.cdi.kubevirt.io": cdiv1.StorageProfile{}, "guestosinfo.subresources.kubevirt.io": v1.VirtualMachineInstanceGuestAgentInfo{},
		"filesystemlist.subresources.kubevirt.io": v1.VirtualMachineInstanceFileSystemList{}, "state.diagnose.drydock.dev": launch.Report{},
	} {
		rule := kinds()[kind]
		if strings.HasSuffix(kind, ".subresources.kubevirt.io") || strings.HasSuffix(kind, ".diagnose.drydock.dev") {
			rule = parse(allowedOf[kind], nil)
		}
		compare(t, kind, &rule, reflect.TypeOf(of))
	}
}

// sharedFields are of one of the kinds that use a rule, or of a newer API.
var sharedFields = map[string]bool{"apiVersion": true, "kind": true, "apiGroup": true, "namespace": true, "uid": true, "resize": true, "lastHeartbeatTime": true,
	"lastProbeTime": true, "lastUpdateTime": true, "observedGeneration": true, "name": true, "changedBlockTracking": true, "shareable": true}

func compare(t *testing.T, at string, rule *rule, of reflect.Type) {
	t.Helper()
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	if rule.form != fields || of.Kind() != reflect.Struct {
		return
	}
	has := map[string]reflect.Type{}
	fieldsOf(of, has)
	for name, sub := range rule.fields {
		typed, known := has[name]
		if !known {
			if !sharedFields[name] {
				t.Errorf("%s.%s: %s has no such field", at, name, of)
			}
			continue
		}
		compare(t, at+"."+name, &sub, typed)
	}
}

func fieldsOf(of reflect.Type, into map[string]reflect.Type) {
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			embedded := f.Type
			for embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			if embedded.Kind() == reflect.Struct {
				fieldsOf(embedded, into)
			}
			continue
		}
		into[name] = f.Type
	}
}

func TestArgumentsOfQEMU(t *testing.T) {
	args := []string{
		"-machine", "type=q35,usb=off", "-cpu", "host,vmx=on,hv-spinlocks=0x1fff,hv-vendor-id=" + secret, "-nodefaults",
		"-blockdev", `{"driver":"file","filename":"/var/run/x.img","cache":{"direct":true},"password-secret":"` + secret + `"}`,
		"-device", `{"driver":"virtio-blk-pci","id":"disk-root","serial":"` + secret + `","drive":"root"}`,
		"-object", `{"qom-type":"secret","id":"s","data":"` + secret + `"}`, "-object", "secret,id=s,data=" + secret,
		"-append", "password=" + secret, "-fw_cfg", "name=opt/x,string=" + secret, "-smbios", "type=1,serial=" + secret,
		secret, "-chardev", "socket,id=qmp0,path=/var/run/kubevirt/qmp.sock", "-kernel",
	}
	want := []string{
		"-machine type=q35,usb=off", "-cpu host,vmx=on,hv-spinlocks=0x1fff,(withheld)", "-nodefaults",
		`-blockdev {"(withheld)":"(withheld)","cache":{"direct":true},"driver":"file","filename":"/var/run/x.img"}`,
		`-device {"drive":"root","driver":"virtio-blk-pci","id":"disk-root","serial":"(withheld)"}`,
		`-object {"data":"(withheld)","id":"s","qom-type":"secret"}`, "-object (withheld)",
		"-append (withheld)", "-fw_cfg (withheld)", "-smbios (withheld)", "(withheld)", "-chardev socket,id=qmp0,path=/var/run/kubevirt/qmp.sock", "(withheld)",
	}
	if diff := cmp.Diff(want, New().Arguments(args)); diff != "" {
		t.Error(diff)
	}
}

func FuzzObject(f *testing.F) {
	f.Add("virtualmachines.kubevirt.io", "spec: {template: {spec: {volumes: [{name: a, cloudInitNoCloud: {userData: b}}]}}}")
	f.Add("pods", "spec: [[[1]]]\nmetadata: 3")
	f.Fuzz(func(_ *testing.T, kind, text string) {
		var o map[string]any
		if yaml.Unmarshal([]byte(text), &o) != nil {
			return
		}
		r := New()
		r.Object(kind, o)
		r.Object(kind, o)
	})
}
