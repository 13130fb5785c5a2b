import java.lang.annotation.Annotation;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import javax.ws.rs.HttpMethod;
import javax.ws.rs.Path;

/**
 * Prints Pulsar's admin API as its classes declare it, with tabs between words: `request CLASS VERB PATH` for each class
 * that answers requests, `member CLASS NAME` for each class of values, whose name is given with `=` before it, and whole
 * if it is not one of the policies.
 */
class AdminApi {
    private static final String RESOURCES = "org.apache.pulsar.broker.admin.v2.";
    private static final String VALUES = "org.apache.pulsar.common.policies.data.";

    public static void main(String[] names) throws Exception {
        for (String name : names) {
            boolean isResource = !name.startsWith("=");
            String value = name.substring(1);
            String full = isResource ? RESOURCES + name : value.contains(".") ? value : VALUES + value;
            Class<?> type = Class.forName(full, false, AdminApi.class.getClassLoader());
            if (isResource) printRequests(type); else printMembers(type);
        }
    }

    private static void printRequests(Class<?> type) {
        for (Method method : type.getMethods()) {
            for (Annotation one : method.getAnnotations()) {
                HttpMethod verb = one.annotationType().getAnnotation(HttpMethod.class);
                if (verb == null) continue;
                Path path = method.getAnnotation(Path.class);
                print("request", type, verb.value(), path == null ? "" : path.value());
            }
        }
    }

    private static void printMembers(Class<?> type) {
        for (Field field : type.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers())) print("member", type, field.getName());
        }
    }

    private static void print(String kind, Class<?> type, String... words) {
        System.out.println(String.join("\t", kind, type.getSimpleName(), String.join("\t", words)));
    }
}
