package components

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apitypes "k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestWhoMonitorsAndWhere(t *testing.T) {
	type names = []apitypes.NamespacedName
	for name, test := range map[string]struct {
		spec     string
		accounts names
		named    bool
		where    string
	}{
		"nothing is said":                {"{}", names{{Namespace: "openshift-monitoring", Name: "prometheus-k8s"}, {Namespace: "monitoring", Name: "prometheus-k8s"}}, false, "openshift-monitoring"},
		"a namespace":                    {"{monitorNamespace: watch}", names{{Namespace: "watch", Name: "prometheus-k8s"}}, true, "watch"},
		"a namespace and an account":     {"{monitorNamespace: watch, monitorAccount: eye}", names{{Namespace: "watch", Name: "eye"}}, true, "watch"},
		"an account alone":               {"{monitorAccount: eye}", names{{Namespace: "openshift-monitoring", Name: "eye"}, {Namespace: "monitoring", Name: "eye"}}, false, "openshift-monitoring"},
		"the ServiceMonitor's namespace": {"{serviceMonitorNamespace: shop, monitorNamespace: watch}", names{{Namespace: "watch", Name: "prometheus-k8s"}}, true, "shop"},
	} {
		t.Run(name, func(t *testing.T) {
			kv := &v1.KubeVirt{}
			if err := yaml.UnmarshalStrict([]byte("spec: "+test.spec), kv); err != nil {
				t.Fatal(err)
			}
			m := MonitoringOf(kv)
			if diff := cmp.Diff(test.accounts, m.Accounts); diff != "" || m.Named != test.named {
				t.Errorf("named %v, accounts %s", m.Named, diff)
			}
			if where := m.Namespace(m.Accounts[0]); where != test.where {
				t.Errorf("the ServiceMonitor is in %s, want %s", where, test.where)
			}
		})
	}
	if m := MonitoringOf(nil); len(m.Accounts) != 0 {
		t.Errorf("without a KubeVirt object somebody monitors: %+v", m)
	}
}

func TestTheRulesAreForPrometheussOperator(t *testing.T) {
	rules := Rules("watch")
	if !Ours(rules.GetLabels()) || rules.GetLabels()["prometheus.kubevirt.io"] != "true" || rules.GetNamespace() != "watch" {
		t.Errorf("the rules in %s have the labels %v", rules.GetNamespace(), rules.GetLabels())
	}
	// An object with other values than those of JSON can't be copied.
	if diff := cmp.Diff(rules.Object, rules.DeepCopy().Object); diff != "" {
		t.Error(diff)
	}
	live := rules.DeepCopy()
	if groups, _, err := unstructured.NestedSlice(live.Object, "spec", "groups"); err != nil || len(groups) != 2 || !Says(live.Object, Rules("watch").Object) {
		t.Errorf("%d groups, %v", len(groups), err)
	}
}

func TestWhatIsApplied(t *testing.T) {
	monitor, err := yaml.Marshal(ServiceMonitor("watch", "kubevirt", "metrics.kubevirt.svc"))
	if err != nil {
		t.Fatal(err)
	}
	authorities, err := yaml.Marshal(Authorities("watch", "a certificate"))
	if err != nil {
		t.Fatal(err)
	}
	binding, err := yaml.Marshal(MonitoringBinding("kubevirt", apitypes.NamespacedName{Namespace: "watch", Name: "eye"}))
	if err != nil {
		t.Fatal(err)
	}
	want := `apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  labels:
    app.kubernetes.io/managed-by: drydock
    k8s-app: kubevirt
    openshift.io/cluster-monitoring: ""
    prometheus.kubevirt.io: "true"
  name: prometheus-kubevirt-rules
  namespace: watch
spec:
  endpoints:
  - bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
    honorLabels: true
    port: metrics
    scheme: https
    tlsConfig:
      ca:
        configMap:
          key: ca.crt
          name: kubevirt-metrics-ca
      serverName: metrics.kubevirt.svc
  namespaceSelector:
    matchNames:
    - kubevirt
  selector:
    matchLabels:
      prometheus.kubevirt.io: "true"
---
apiVersion: v1
data:
  ca.crt: a certificate
kind: ConfigMap
metadata:
  labels:
    app.kubernetes.io/managed-by: drydock
  name: kubevirt-metrics-ca
  namespace: watch
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  labels:
    app.kubernetes.io/managed-by: drydock
  name: kubevirt-monitoring
  namespace: kubevirt
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: kubevirt-monitoring
subjects:
- kind: ServiceAccount
  name: eye
  namespace: watch
`
	if diff := cmp.Diff(want, string(monitor)+"---\n"+string(authorities)+"---\n"+string(binding)); diff != "" {
		t.Error(diff)
	}
}

func TestSays(t *testing.T) {
	for name, test := range map[string]struct {
		live, want string
		says       bool
	}{
		"the same":                {`{a: {b: [1]}}`, `{a: {b: [1]}}`, true},
		"more":                    {`{a: {b: [{c: 1, d: 2}]}, e: 1}`, `{a: {b: [{c: 1}]}}`, true},
		"less":                    {`{a: {}}`, `{a: {b: 1}}`, false},
		"another value":           {`{a: 1}`, `{a: 2}`, false},
		"a longer list":           {`{a: [1, 2]}`, `{a: [1]}`, false},
		"another kind of value":   {`{a: 1}`, `{a: [1]}`, false},
		"another kind of value 2": {`{a: 1}`, `{a: {b: 1}}`, false},
	} {
		var live, want any
		if err := yaml.Unmarshal([]byte(test.live), &live); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal([]byte(test.want), &want); err != nil {
			t.Fatal(err)
		}
		if Says(live, want) != test.says {
			t.Errorf("%s: %v", name, !test.says)
		}
	}
}
