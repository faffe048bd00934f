// Package helm_test tests the chart deploy/helm/locket with Helm's own code, and the rendered manifests with the types of
// Kubernetes. The plain manifests in deploy/kubernetes are rendered for a release "locket"; LOCKET_UPDATE=1 writes them
// again.
package helm_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

const chart = "../../deploy/helm/locket"

var engines = map[string]map[string]any{
	"embedded": {"rules": "rules: []\n", "settings": map[string]any{"oidc-issuers": "https://issuer.example.com"}},
	"cluster":  {"engine": "cluster", "cluster": map[string]any{"secret": "locket-nodes", "join": "locket-1"}},
	"etcd":     {"engine": "etcd", "etcd": map[string]any{"replicas": 2, "endpoints": []any{"https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379"}, "secret": "locket-etcd"}},
	"mysql": {
		"engine": "mysql", "mysql": map[string]any{"database": "mysql:locket@tcp(mysql:3306)/locket", "secret": "locket-database"},
		"tls":            map[string]any{"secret": "locket-tls"},
		"settings":       map[string]any{"log-level": "debug"},
		"serviceMonitor": map[string]any{"enabled": true},
		"networkPolicy":  map[string]any{"metricsFrom": []any{map[string]any{"namespaceSelector": map[string]any{}}}},
	},
}

// render returns the manifests of the chart, one after the other.
func render(values map[string]any) (string, error) {
	c, err := loader.Load(chart)
	if err != nil {
		return "", err
	}
	options := chartutil.ReleaseOptions{Name: "locket", Namespace: "default", IsInstall: true, Revision: 1}
	all, err := chartutil.ToRenderValues(c, values, options, chartutil.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return "", err
	}
	var names []string
	for name := range files {
		if strings.HasSuffix(name, ".yaml") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var text strings.Builder
	for _, name := range names {
		text.WriteString("---\n" + strings.TrimSpace(files[name]) + "\n")
	}
	return text.String(), nil
}

// objects returns the objects in manifests. Unknown fields are errors; objects whose type is not one of Kubernetes itself are left out.
func objects(t *testing.T, manifests string) (found []runtime.Object) {
	t.Helper()
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	for manifest := range strings.SplitSeq(manifests, "---\n") {
		if strings.TrimSpace(manifest) == "" {
			continue
		}
		object, _, err := decoder.Decode([]byte(manifest), nil, nil)
		if runtime.IsNotRegisteredError(err) && strings.Contains(manifest, "kind: ServiceMonitor") {
			continue
		}
		if err != nil {
			t.Errorf("%v in\n%s", err, manifest)
			continue
		}
		found = append(found, object)
	}
	return found
}

func one[T runtime.Object](t *testing.T, all []runtime.Object) (found T) {
	t.Helper()
	n := 0
	for _, object := range all {
		if o, ok := object.(T); ok {
			found, n = o, n+1
		}
	}
	if n != 1 {
		t.Fatalf("%d objects of type %T", n, found)
	}
	return found
}

// TestLint: for either engine Helm's linter reports only that there is no icon.
func TestLint(t *testing.T) {
	for name, values := range engines {
		for _, message := range lint.All(chart, values, "default", true).Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %s", name, message)
			}
		}
	}
}

// TestRender: each engine has the objects that it needs, every pod is confined, and services, policies and budgets select
// the pods.
func TestRender(t *testing.T) {
	for name, values := range engines {
		t.Run(name, func(t *testing.T) {
			manifests, err := render(values)
			if err != nil {
				t.Fatal(err)
			}
			all := objects(t, manifests)
			var pod corev1.PodTemplateSpec
			if replicas := map[string]int32{"embedded": 1, "cluster": 3, "etcd": 2}[name]; replicas > 0 {
				set := one[*appsv1.StatefulSet](t, all)
				pod = set.Spec.Template
				if *set.Spec.Replicas != replicas || len(set.Spec.VolumeClaimTemplates) != 1 {
					t.Errorf("%d replicas, %d volumes", *set.Spec.Replicas, len(set.Spec.VolumeClaimTemplates))
				}
				if !strings.Contains(manifests, "\n  name: "+set.Spec.ServiceName+"\n") {
					t.Errorf("there is no service %s", set.Spec.ServiceName)
				}
				if values["rules"] != nil {
					one[*corev1.ConfigMap](t, all)
				}
			} else {
				deployment := one[*appsv1.Deployment](t, all)
				pod = deployment.Spec.Template
				if *deployment.Spec.Replicas != 2 {
					t.Errorf("%d replicas", *deployment.Spec.Replicas)
				}
				if !strings.Contains(manifests, "kind: ServiceMonitor") {
					t.Error("no ServiceMonitor")
				}
			}
			checkPod(t, name, pod)
			selects := func(what string, labels map[string]string) {
				t.Helper()
				for key, value := range labels {
					if pod.Labels[key] != value {
						t.Errorf("%s selects %v, the pods have %v", what, labels, pod.Labels)
					}
				}
				if len(labels) == 0 {
					t.Errorf("%s selects all pods", what)
				}
			}
			budget := one[*policyv1.PodDisruptionBudget](t, all)
			selects("the budget", budget.Spec.Selector.MatchLabels)
			policy := one[*networkingv1.NetworkPolicy](t, all)
			selects("the policy", policy.Spec.PodSelector.MatchLabels)
			for _, rule := range policy.Spec.Ingress {
				if len(rule.From) == 0 || len(rule.Ports) == 0 {
					t.Errorf("a rule lets in everybody, or to everything: %v", rule)
				}
			}
			for _, object := range all {
				if service, ok := object.(*corev1.Service); ok {
					selects("service "+service.Name, service.Spec.Selector)
				}
			}
		})
	}
}

func checkPod(t *testing.T, engine string, pod corev1.PodTemplateSpec) {
	t.Helper()
	c := pod.Spec.Containers[0]
	if s := pod.Spec.SecurityContext; !*s.RunAsNonRoot || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod may be root, or make every system call: %v", s)
	}
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("the container is not confined: %v", s)
	}
	if *pod.Spec.AutomountServiceAccountToken {
		t.Error("the pod gets a token of Kubernetes, which it does not need")
	}
	if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.StartupProbe == nil {
		t.Error("a probe is missing")
	}
	mounted := make(map[string]bool)
	for _, volume := range c.VolumeMounts {
		mounted[volume.Name] = true
	}
	for _, volume := range pod.Spec.Volumes {
		if !mounted[volume.Name] {
			t.Errorf("volume %s is not mounted", volume.Name)
		}
	}
	if has := slices.Contains(c.Args, "--data=/var/lib/locket/data"); has != (engine != "mysql") || has != mounted["data"] {
		t.Errorf("%s: %v, with %v mounted", engine, c.Args, mounted)
	}
	if insecure := slices.Contains(c.Args, "--insecure"); insecure == mounted["tls"] {
		t.Errorf("%v, with %v mounted", c.Args, mounted)
	}
}

// TestRefusals: the schema refuses invalid values.
func TestRefusals(t *testing.T) {
	for word, values := range map[string]map[string]any{
		"engine":     {"engine": "oracle"},
		"database":   {"engine": "mysql"},
		"rules":      {"rules": "rules: []\n"},
		"cluster":    {"engine": "cluster"},
		"endpoints":  {"engine": "etcd"},
		"secret":     {"engine": "mysql", "mysql": map[string]any{"database": "mysql:x", "tls": true}},
		"nosuch":     {"nosuch": true},
		"size":       {"embedded": map[string]any{"size": "large"}},
		"replicas":   {"engine": "mysql", "mysql": map[string]any{"database": "mysql:x", "replicas": 0}},
		"'data'":     {"settings": map[string]any{"data": "/elsewhere"}},
		"repository": {"image": map[string]any{"repository": ""}},
	} {
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v: %v, want an error that names %s", values, err, word)
		}
	}
}

// TestPlainManifests: the manifests in deploy/kubernetes, for use without Helm, equal the chart's output.
func TestPlainManifests(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"embedded": {},
		"cluster": {
			"engine": "cluster", "cluster": map[string]any{"secret": "locket-nodes"}, "embedded": map[string]any{"size": "16Gi"},
			"resources": map[string]any{"requests": map[string]any{"cpu": "500m", "memory": "512Mi"}, "limits": map[string]any{"memory": "2Gi"}},
		},
		"etcd":  {"engine": "etcd", "etcd": map[string]any{"endpoints": []any{"https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379", "https://etcd-2.etcd:2379"}, "secret": "locket-etcd"}},
		"mysql": {"engine": "mysql", "mysql": map[string]any{"database": "mysql:locket@tcp(mysql:3306)/locket", "secret": "locket-database"}, "tls": map[string]any{"secret": "locket-tls"}},
	} {
		want, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		want = strings.ReplaceAll(want, "\n    app.kubernetes.io/managed-by: Helm", "")
		want = strings.ReplaceAll(want, "\n        app.kubernetes.io/managed-by: Helm", "")
		want = "# Written by LOCKET_UPDATE=1 make test-chart from the chart in deploy/helm/locket.\n" + strings.TrimPrefix(want, "---\n")
		file := filepath.Join("../../deploy/kubernetes", name+".yaml")
		if os.Getenv("LOCKET_UPDATE") != "" {
			if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		objects(t, want)
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, []byte(want)) {
			t.Errorf("%s is not what the chart renders (%v): LOCKET_UPDATE=1 make test-chart", file, err)
		}
	}
}
