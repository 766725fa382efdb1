package components

import (
	"cmp"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apitypes "k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/ruletable"
)

// Names by which Prometheus's operator finds Drydock's metrics and rules. ServiceMonitorName is KubeVirt's.
const (
	// ServiceMonitorDefinition is the CRD without which nothing is created.
	ServiceMonitorDefinition = "servicemonitors.monitoring.coreos.com"
	ServiceMonitorName       = "prometheus-kubevirt-rules"
	// RulesDefinition is the CRD without which no rules are created. RulesName is KubeVirt's.
	RulesDefinition = "prometheusrules.monitoring.coreos.com"
	RulesName       = "prometheus-kubevirt-rules"
	// MonitoringRole is the Role and RoleBinding that let Prometheus discover the pods (config/rbac/monitoring.yaml).
	MonitoringRole = "kubevirt-monitoring"
	// MetricsAuthorities is the ConfigMap beside the ServiceMonitor with the authorities of the metrics servers.
	MetricsAuthorities = "kubevirt-metrics-ca"

	authoritiesEntry = "ca.crt"
	// prometheusToken is the path of the service account token in any pod.
	prometheusToken = "/var/run/secrets/kubernetes.io/serviceaccount/token"

	defaultMonitorAccount = "prometheus-k8s"
	// monitorLabel is on the Service and the pods that have metrics.
	monitorLabel = "prometheus.kubevirt.io"
)

// ServiceMonitorKind tells Prometheus's operator its targets.
var ServiceMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"}

// RulesKind tells Prometheus's operator its rules.
var RulesKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"}

// AuthoritiesKind is the kind of MetricsAuthorities.
var AuthoritiesKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// managedBy marks the objects for Prometheus, so that nobody else's is deleted.
var managedBy = map[string]string{"app.kubernetes.io/managed-by": "drydock"}

// Ours reports whether the labels are those of an object for Prometheus that Drydock created.
func Ours(labels map[string]string) bool {
	for key, value := range managedBy {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// Monitoring is the KubeVirt object's settings for Prometheus.
type Monitoring struct {
	// Accounts are candidates for Prometheus's service account; the first that exists counts. With Named, the object
	// names the namespace and the account need not exist yet.
	Accounts []apitypes.NamespacedName
	Named    bool
	// namespace is the ServiceMonitor's; empty for the account's.
	namespace string
}

// MonitoringOf returns the settings of the KubeVirt object; without one, there are no accounts.
func MonitoringOf(kv *v1.KubeVirt) Monitoring {
	if kv == nil {
		return Monitoring{}
	}
	account := cmp.Or(kv.Spec.MonitorAccount, defaultMonitorAccount)
	m := Monitoring{namespace: kv.Spec.ServiceMonitorNamespace, Named: kv.Spec.MonitorNamespace != ""}
	namespaces := []string{"openshift-monitoring", "monitoring"}
	if m.Named {
		namespaces = []string{kv.Spec.MonitorNamespace}
	}
	for _, namespace := range namespaces {
		m.Accounts = append(m.Accounts, apitypes.NamespacedName{Namespace: namespace, Name: account})
	}
	return m
}

// Namespace returns the ServiceMonitor's namespace for Prometheus's account.
func (m Monitoring) Namespace(account apitypes.NamespacedName) string {
	return cmp.Or(m.namespace, account.Namespace)
}

// ServiceMonitor returns the object by which Prometheus scrapes the components in the namespace home. Prometheus sends
// its token only to servers whose certificate has the name server, and keeps the guests' labels (namespace, name).
func ServiceMonitor(namespace, home, server string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"selector":          map[string]any{"matchLabels": map[string]any{monitorLabel: "true"}},
			"namespaceSelector": map[string]any{"matchNames": []any{home}},
			"endpoints": []any{map[string]any{
				"port": "metrics", "scheme": "https", "honorLabels": true, "bearerTokenFile": prometheusToken,
				"tlsConfig": map[string]any{
					"serverName": server,
					"ca":         map[string]any{"configMap": map[string]any{"name": MetricsAuthorities, "key": authoritiesEntry}},
				},
			}},
		},
	}}
	object.SetGroupVersionKind(ServiceMonitorKind)
	object.SetNamespace(namespace)
	object.SetName(ServiceMonitorName)
	object.SetLabels(selected())
	return object
}

// selected returns the labels by which the Prometheus of OpenShift, and those of KubeVirt's users, select.
func selected() map[string]string {
	labels := map[string]string{"openshift.io/cluster-monitoring": "", monitorLabel: "true", "k8s-app": "kubevirt"}
	maps.Copy(labels, managedBy)
	return labels
}

// Rules returns the recording rules and alerts for Prometheus's operator.
func Rules(namespace string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"groups": ruletable.Groups()}}}
	object.SetGroupVersionKind(RulesKind)
	object.SetNamespace(namespace)
	object.SetName(RulesName)
	object.SetLabels(selected())
	return object
}

// Authorities returns the ConfigMap for a ServiceMonitor in the namespace.
func Authorities(namespace, bundle string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{authoritiesEntry: bundle}}}
	object.SetGroupVersionKind(AuthoritiesKind)
	object.SetNamespace(namespace)
	object.SetName(MetricsAuthorities)
	object.SetLabels(managedBy)
	return object
}

// MonitoringBinding returns the RoleBinding that lets Prometheus's account discover the pods.
func MonitoringBinding(home string, account apitypes.NamespacedName) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{
		"roleRef":  map[string]any{"apiGroup": rbacv1.GroupName, "kind": "Role", "name": MonitoringRole},
		"subjects": []any{map[string]any{"kind": rbacv1.ServiceAccountKind, "namespace": account.Namespace, "name": account.Name}},
	}}
	object.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
	object.SetNamespace(home)
	object.SetName(MonitoringRole)
	object.SetLabels(managedBy)
	return object
}

// Says reports whether live contains all of want. Additional fields, such as defaults, do not count; lists must have
// the same length.
func Says(live, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		live, ok := live.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range want {
			if !Says(live[key], value) {
				return false
			}
		}
		return true
	case []any:
		live, ok := live.([]any)
		if !ok || len(live) != len(want) {
			return false
		}
		for i := range want {
			if !Says(live[i], want[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(live, want)
}
