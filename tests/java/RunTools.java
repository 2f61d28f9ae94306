import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/**
 * RunTools: Kafka's own commands, one after the other in one JVM. A line of input is the class of a command and its
 * arguments, with tabs between them. Its output follows with "|" before each line, and then "." and its exit code.
 */
public final class RunTools {
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1L;
    }

    private static ByteArrayOutputStream output;
    private static Integer code;
    private static int length;

    public static void main(String[] arguments) throws IOException {
        PrintStream answers = System.out;
        PrintStream troubles = System.err;
        Exit.setExitProcedure((given, message) -> {
            if (code == null) { // some catch what ends them, and say more about that
                code = given;
                length = output.size();
            }
            throw new Ended();
        });
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String order = orders.readLine(); order != null; order = orders.readLine()) {
            output = new ByteArrayOutputStream();
            code = null;
            PrintStream captured = new PrintStream(output, true, StandardCharsets.UTF_8);
            System.setOut(captured);
            System.setErr(captured);
            int ended = run(order.split("\t"));
            System.setOut(answers);
            System.setErr(troubles);
            int size = code == null ? output.size() : length;
            new String(output.toByteArray(), 0, size, StandardCharsets.UTF_8).lines()
                    .forEach(line -> answers.println("|" + line));
            answers.println("." + (code == null ? ended : code));
            answers.flush();
        }
    }

    private static int run(String[] words) {
        try {
            Class<?> tool = Class.forName(words[0]);
            Object arguments = Arrays.copyOfRange(words, 1, words.length);
            tool.getMethod("main", String[].class).invoke(null, arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Ended)) {
                error.getCause().printStackTrace();
            }
            return 1;
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            return 1;
        }
    }
}
