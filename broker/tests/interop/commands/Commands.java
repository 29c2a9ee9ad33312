import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.activemq.artemis.cli.Artemis;

/**
 * Runs commands of the artemis command line one after the other in one process, because starting one takes seconds.
 *
 * <p>A line of standard input is one command: its arguments in Base64, separated by blanks. Its answer is one line:
 * the exit code that the command would have had, a blank, and what it printed in Base64. Run as a source file, with the
 * libraries of the distribution as class path.
 */
public final class Commands {
    private Commands() {}

    public static void main(String[] arguments) throws Exception {
        File home = new File(arguments[0]);
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] command = line.isEmpty() ? new String[0] : line.split(" ");
            for (int index = 0; index < command.length; index++) {
                command[index] = new String(Base64.getDecoder().decode(command[index]), StandardCharsets.UTF_8);
            }
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream printing = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(printing);
            System.setErr(printing);
            int code;
            try {
                Object result = Artemis.execute(false, true, false, home, null, null, command);
                code = result instanceof Exception ? 1 : 0;
            } catch (Throwable thrown) {
                // what the launcher of a process does with it
                printing.println(thrown);
                code = 1;
            }
            printing.flush();
            answers.println(code + " " + Base64.getEncoder().encodeToString(printed.toByteArray()));
            answers.flush();
        }
    }
}
